"""Static int8: what calibration chooses, what the graph then computes, and that neither depends on chance."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from inference.conftest import REFERENCE, MakeWindow

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device import sessions
from enricher.worker.inference.device.hardware import processor_features
from enricher.worker.inference.device.sessions import Runtime, Session, open_session
from enricher.worker.inference.graph.int8 import (
    Measured,
    QuantisedInput,
    Recipe,
    TextsUsed,
    quantise,
    read_recipe,
    recipe_path,
    write_recipe,
)
from enricher.worker.inference.graph.padded import OpenVinoBfloat16, OpenVinoFloat32
from enricher.worker.records import Float32Array, Window
from enricher.workshop.int8_gains import (
    BATCH_BYTES,
    Choice,
    Observed,
    batches_of,
    build_float32,
    choose,
    quantisable_inputs,
)
from enricher.workshop.int8_recipe import calibrate, divide, keep_fewest

FAMILIES = (
    "bert",
    "deberta-v2",
    "modernbert",
    "electra",
    *(pytest.param(each, marks=pytest.mark.long) for each in ("distilbert", "roberta", "camembert", "xlm-roberta")),
)
"""The last four have the graph of bert, with other names and positions."""
ENCODERS = ("bert", "deberta-v2", "modernbert")
"""One family of each encoder."""
TEXTS = TextsUsed(name="random", digest="0" * 64, number=1, windows=48, tokens=1)
needs_openvino = pytest.mark.skipif(not sessions.is_installed(), reason="OpenVINO is not installed")
needs_vnni = pytest.mark.skipif(
    not {"avx512_vnni", "avx_vnni", "amx_int8"} & set(processor_features()), reason="the processor has no int8 products"
)


@pytest.fixture(scope="module")
def windows(window: MakeWindow) -> Callable[[Checkpoint], list[Window]]:
    """48 windows of random ids and lengths, always the same."""

    def make(checkpoint: Checkpoint) -> list[Window]:
        draw = np.random.default_rng(7)
        lengths = draw.integers(4, min(96, checkpoint.max_window_tokens), 48)
        return [window(draw.integers(3, checkpoint.config.vocab_size, length).tolist()) for length in lengths]

    return make


def _calibrated(checkpoint: Checkpoint, windows: Sequence[Window], *, seed: int = 0, target: float = 0.5) -> Recipe:
    return calibrate(checkpoint, windows, seed=seed, texts=TEXTS, threads=2, progress=lambda *_: None, target=target)


@pytest.fixture(scope="module")
def recipe_of(windows: Callable[[Checkpoint], list[Window]]) -> Callable[[str], Recipe]:
    """The recipe of a family's small random model, with everything quantised."""

    @functools.cache
    def make(family: str) -> Recipe:
        checkpoint = Checkpoint.open(REFERENCE / family)
        return _calibrated(checkpoint, windows(checkpoint))

    return make


@pytest.fixture(scope="module")
def bert_recipe(recipe_of: Callable[[str], Recipe]) -> Recipe:
    """BERT's."""
    return recipe_of("bert")


def _built(checkpoint: Checkpoint, folder: Path, recipe: Recipe | None) -> Path:
    folder.mkdir()
    path = build_float32(checkpoint, folder)
    if recipe is not None:
        quantise(folder, recipe)
    return path


def _opened(checkpoint: Checkpoint, folder: Path, recipe: Recipe | None, runtime: Runtime) -> Session:
    return open_session(_built(checkpoint, folder, recipe), runtime, threads_per_run=1)


def _logits(session: Session, batch: Sequence[Window]) -> list[Float32Array]:
    """For each window, without padding. Lengths are rounded up as in a worker."""
    (logits,) = session.run(["logits"], OpenVinoBfloat16().feeds(batch, 0))
    return [rows[: each.length_tokens] for rows, each in zip(logits, batch, strict=True)]


@needs_openvino
@needs_vnni  # without them, sums of products saturate
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_keeps_the_labels_that_float32_is_sure_of(
    family: str, tmp_path: Path, windows: Callable[[Checkpoint], list[Window]], recipe_of: Callable[[str], Recipe]
) -> None:
    """99 % of them, and logits differ by 5 % of their deviation; all products are quantised but the head's.

    The two best logits of a random model are often nearly equal, and then any rounding decides. So tokens count whose two
    best logits differ by a tenth of the logits' standard deviation.
    """
    checkpoint = Checkpoint.open(REFERENCE / family)
    ours = windows(checkpoint)
    recipe, by_layer = recipe_of(family), 7 if family == "modernbert" else 6
    projection = checkpoint.config.embedding_size not in {None, checkpoint.config.hidden_size}
    assert by_layer * checkpoint.config.layers + projection == len(recipe.products)
    exact = np.concatenate(_logits(_opened(checkpoint, tmp_path / "exact", None, "cpu"), ours))
    found = np.concatenate(_logits(_opened(checkpoint, tmp_path / "int8", recipe, "openvino-fp32"), ours))
    best = np.sort(exact, axis=-1)
    sure = best[:, -1] - best[:, -2] > 0.1 * exact.std()
    assert sure.mean() > 0.7
    assert (exact.argmax(axis=-1) == found.argmax(axis=-1))[sure].mean() >= 0.99
    assert np.sqrt(np.square(found - exact).mean()) <= 0.05 * exact.std()


@needs_openvino
@pytest.mark.parametrize("variant", [OpenVinoBfloat16(), OpenVinoFloat32()], ids=lambda each: each.name)
@pytest.mark.parametrize("family", ENCODERS)
def test_a_batch_does_not_change_the_answers_of_a_window(
    family: str,
    variant: OpenVinoFloat32,
    tmp_path: Path,
    windows: Callable[[Checkpoint], list[Window]],
    recipe_of: Callable[[str], Recipe],
) -> None:
    """Every logit is the same to the last bit, alone and beside longer and shorter windows: the ranges are constants."""
    if variant.problem() is not None:
        pytest.skip(str(variant.problem()))
    checkpoint = Checkpoint.open(REFERENCE / family)
    ours = windows(checkpoint)[:12]
    session = _opened(checkpoint, tmp_path / "int8", recipe_of(family), variant.runtime)
    together = _logits(session, ours)
    for each, expected in zip(ours, together, strict=True):
        np.testing.assert_array_equal(expected, _logits(session, [each])[0])


@needs_openvino
@needs_vnni
@pytest.mark.parametrize("family", ENCODERS)
def test_what_is_quantised_runs_as_integers(family: str, tmp_path: Path, recipe_of: Callable[[str], Recipe]) -> None:
    """OpenVINO names every product that it runs in int8, with uint8 coming in. It runs what it cannot use in float32."""
    checkpoint, recipe = Checkpoint.open(REFERENCE / family), recipe_of(family)
    expected = {f"{name}.matmul" for name in recipe.products}
    assert expected == _integer_products(_built(checkpoint, tmp_path / "int8", recipe), expected)
    assert set() == _integer_products(_built(checkpoint, tmp_path / "exact", None), expected)


def _integer_products(path: Path, names: set[str]) -> set[str]:
    import openvino  # noqa: PLC0415  not everywhere

    core = openvino.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found = set()
    for operator in compiled.get_runtime_model().get_ordered_ops():
        about = {key: operator.get_rt_info()[key].astype(str) for key in ("primitiveType", "originalLayersNames")}
        if "I8" in about["primitiveType"]:
            found |= names & set(about["originalLayersNames"].split(","))
    return found


def test_the_same_windows_and_seed_make_the_same_recipe(
    tmp_path: Path, windows: Callable[[Checkpoint], list[Window]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte by byte, with the search for what is kept; another seed divides the windows differently."""
    monkeypatch.setattr("enricher.workshop.int8_recipe.HIGHEST_KEPT", 0.25)
    checkpoint = Checkpoint.open(REFERENCE / "distilbert")
    make = functools.partial(_calibrated, checkpoint, windows(checkpoint)[:12])
    first = make(target=1.0)
    assert first.model_dump_json() == make(target=1.0).model_dump_json()
    assert make().digest != make(seed=1).digest
    assert first.kept
    assert {each.name for each in first.kept}.isdisjoint(first.products)
    assert first == read_recipe(write_recipe(tmp_path, first).parent)


def test_a_recipe_that_is_missing_or_broken(tmp_path: Path) -> None:
    """None if there is none; a broken one is an error that says how to make another."""
    assert read_recipe(tmp_path) is None
    recipe_path(tmp_path).write_text("{}")
    with pytest.raises(ModelError, match="--calibrate"):
        read_recipe(tmp_path)


@pytest.mark.parametrize("change", [{"gains": "A"}, {"high": 1e-44}, {"high": 1e300}])
def test_a_recipe_without_usable_numbers_is_refused(
    change: dict[str, object], tmp_path: Path, bert_recipe: Recipe
) -> None:
    """When it is read, with how to make another: gains that are not base64, and ranges whose scale is 0 or infinite."""
    damaged = bert_recipe.inputs[0].model_copy(update={"low": 0.0, **change})
    write_recipe(tmp_path, bert_recipe.model_copy(update={"inputs": (damaged,)}))
    with pytest.raises(ModelError, match="--calibrate"):
        read_recipe(tmp_path)


def test_windows_are_judged_by_other_articles(window: MakeWindow) -> None:
    """A third of the windows at most, unless each article has more; the order follows from the seed."""
    articles = [[window([2] * 9) for _ in range(size)] for size in (5, 3, 4, 40, 2, 6, 3)]
    windows = [replace(each, ticket=article[0].ticket) for article in articles for each in article]
    for seed in range(5):
        observed, held_out = divide(windows, seed)
        assert {id(each.ticket) for each in observed}.isdisjoint(id(each.ticket) for each in held_out)
        assert len(windows) == len(observed) + len(held_out)
        assert 0 < len(held_out) <= 21
    assert [id(each) for each in divide(windows, 4)[0]] == [id(each) for each in observed]
    two = [each for each in windows if each.ticket in (windows[0].ticket, windows[5].ticket)]
    assert [5, 3] == [len(part) for part in divide(two, 0)]
    with pytest.raises(ModelError, match="5 windows of 1 articles"):
        divide(windows[:5], 0)


def test_a_recipe_counts_what_was_used(window: MakeWindow) -> None:
    """Not what was offered: more than enough tokens are not run."""
    checkpoint = Checkpoint.open(REFERENCE / "distilbert")
    windows = [window([5] * 64) for _ in range(900)]
    recipe = _calibrated(checkpoint, windows, target=0.0)
    assert (512, 512 * 64) == (recipe.texts.windows, recipe.texts.tokens)
    assert 256 == recipe.measured.windows


def test_what_stops_calibration_is_a_model_error(
    tmp_path: Path, windows: Callable[[Checkpoint], list[Window]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that cannot be written, numbers that are not finite, and a runtime that fails, each with what to do."""
    checkpoint = Checkpoint.open(REFERENCE / "distilbert")
    make = functools.partial(
        calibrate, checkpoint, windows(checkpoint)[:6], seed=0, texts=TEXTS, threads=1, progress=lambda *_: None
    )
    with pytest.raises(ModelError, match="room"):
        make(scratch=tmp_path / "none")
    for value in (np.nan, np.inf):
        with pytest.raises(ModelError, match="choose fp32"):
            _observed(np.array([[1.0, value]], np.float32))
    monkeypatch.setattr("enricher.workshop.int8_recipe.six_digits", lambda _value: np.nan)
    with pytest.raises(ModelError, match="Choose fp32"):
        make()
    monkeypatch.setattr("enricher.workshop.int8_recipe.batches_of", _out_of_memory)
    with pytest.raises(ModelError, match="Free memory"):
        make()


def _out_of_memory(*_: object) -> None:
    raise MemoryError


def test_a_recipe_of_another_model_is_refused(tmp_path: Path, bert_recipe: Recipe) -> None:
    """Its ranges would be wrong, and nothing would show it; the graph stays as it is. So with a damaged one."""
    path = _built(Checkpoint.open(REFERENCE / "bert"), tmp_path / "graph", None)
    before = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    first = bert_recipe.inputs[0]
    damaged = [first.model_copy(update=change) for change in ({"gains": "AAAA"}, {"products": ("nothing",)})]
    with pytest.raises(ModelError, match="another model"):
        quantise(path.parent, bert_recipe.model_copy(update={"model_digest": "f" * 64}))
    for each in damaged:
        with pytest.raises(ModelError, match="damaged"):
            quantise(path.parent, bert_recipe.model_copy(update={"inputs": (each, *bert_recipe.inputs[1:])}))
    assert before == {each.name: each.read_bytes() for each in path.parent.iterdir()}


def test_weights_shrink_to_a_quarter_and_embeddings_stay(tmp_path: Path, bert_recipe: Recipe) -> None:
    """The file loses three of four bytes of every quantised weight; whoever could read it still can."""
    checkpoint = Checkpoint.open(REFERENCE / "bert")
    exact = _built(checkpoint, tmp_path / "exact", None)
    reduced = _built(checkpoint, tmp_path / "int8", bert_recipe)
    saved = 3 * sum(checkpoint.weight(f"{name}.weight").size for name in bert_recipe.products)
    sizes = [each.with_name("model.weights").stat().st_size for each in (exact, reduced)]
    assert sizes[0] - sizes[1] == saved
    assert ["model.onnx", "model.weights"] == sorted(each.name for each in reduced.parent.iterdir())
    assert {each.stat().st_mode for each in exact.parent.iterdir()} == {
        each.stat().st_mode for each in reduced.parent.iterdir()
    }


def _observed(rows: Float32Array) -> Observed:
    observed = Observed("x", ("p",), rows.shape[1])
    observed.take(rows, np.arange(len(rows)))
    return observed


def test_outliers_in_one_channel_move_into_the_weight() -> None:
    """Without gains that channel takes the whole range, and the error is several times as large."""
    draw = np.random.default_rng(0)
    weight = draw.standard_normal((32, 24), np.float32)
    even = draw.standard_normal((512, 32), np.float32)
    outliers = even * np.where(np.arange(32) == 5, 60, 1).astype(np.float32)
    weight[5] /= 60
    chosen = choose(_observed(outliers), [weight])
    gains = chosen.quantised.gain_array()
    assert gains is not None
    assert 5 == gains.argmax()
    plain = choose(_observed(even), [weight * np.where(np.arange(32) == 5, 60, 1).astype(np.float32)[:, None]])
    assert chosen.error < 2 * plain.error


def test_a_channel_that_is_always_zero_does_no_harm() -> None:
    """Dead channels, dead products, and values that are all zero: ranges stay finite and above zero."""
    draw = np.random.default_rng(0)
    rows, weight = draw.standard_normal((64, 8), np.float32), draw.standard_normal((8, 4), np.float32)
    rows[:, 2] = 0
    weight[3], weight[:, 1] = 0, 0
    for each in (rows, np.zeros_like(rows)):
        chosen = choose(_observed(each), [weight])
        assert chosen.quantised.high > chosen.quantised.low
        assert np.isfinite(chosen.error)


def _choice(value: str, error: float) -> Choice:
    quantised = QuantisedInput(value=value, products=(value,), low=0, high=1, clip=1, exponent=0, gains="")
    return Choice(quantised, error)


def _made(choices: Sequence[Choice], harm: dict[str, float]) -> tuple[Recipe, list[int]]:
    """A search where each quantised value changes `harm` of the labels. Returns what it finds, and how many it tried."""
    tries: list[int] = []

    def measure(recipe: Recipe) -> Measured:
        tries.append(len(recipe.inputs))
        lost = sum(harm[each.value] for each in recipe.inputs)
        return Measured(windows=1, tokens=1, divergence=lost, equal_labels=1 - lost, target=0.99)

    recipe = Recipe(
        model_digest="",
        builder_version=1,
        seed=0,
        texts=TEXTS,
        inputs=tuple(each.quantised for each in choices),
        kept=(),
        measured=Measured(windows=0, tokens=0, divergence=0, equal_labels=0, target=0.99),
    )
    return keep_fewest(recipe, choices, measure, measure, lambda *_: None), tries


def test_nothing_is_kept_if_nothing_needs_to_be() -> None:
    """One measurement, and every product is int8."""
    choices = [_choice(name, 0.1) for name in "abcdefgh"]
    recipe, tries = _made(choices, dict.fromkeys("abcdefgh", 0.001))
    assert ((), [8]) == (recipe.kept, tries)


def test_as_few_as_possible_are_kept() -> None:
    """The two that do the harm, with the measurements that say so; the estimate had put another one first."""
    choices = [_choice(name, error) for name, error in zip("abcdefgh", [9, 8, 7, 6, 1, 1, 1, 1], strict=True)]
    recipe, _ = _made(choices, dict.fromkeys("abcdefgh", 0.001) | {"b": 0.05, "d": 0.03})
    assert {"b", "d"} == {each.name for each in recipe.kept}
    assert set("acefgh") == set(recipe.products)
    assert all("divergence" in each.reason for each in recipe.kept)
    assert recipe.measured.equal_labels >= 0.99


def test_at_most_half_is_kept_and_the_report_says_what_was_reached() -> None:
    """A target out of reach is not called reached."""
    choices = [_choice(name, 1) for name in "abcdefgh"]
    recipe, tries = _made(choices, dict.fromkeys("abcdefgh", 0.1))
    assert 4 == len(recipe.kept)
    assert pytest.approx(0.6) == recipe.measured.equal_labels
    assert "calibration wanted 99.00 % of labels, reached 60.00 %" == recipe.measured.missed
    assert [8, 8, 7, 7, 7, 7, 4] == tries


def test_a_batch_of_calibration_returns_no_more_than_its_bound(window: MakeWindow, tmp_path: Path) -> None:
    """However many windows there are; and no window is lost."""
    windows = [window([2] * length) for length in range(4, 100)]
    bytes_per_token = BATCH_BYTES // 500
    batches = batches_of(windows, bytes_per_token)
    assert len(windows) == sum(len(batch) for batch in batches)
    assert all(sum(each.length_tokens for each in batch) * bytes_per_token <= BATCH_BYTES for batch in batches)
    checkpoint = Checkpoint.open(REFERENCE / "electra")
    assert "classifier" not in {
        name for each in quantisable_inputs(build_float32(checkpoint, tmp_path)) for name in each.products
    }
