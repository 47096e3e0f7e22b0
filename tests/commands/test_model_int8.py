"""`enricher model prepare --precision int8`: calibration, what it refuses, and a folder that a worker runs."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from commands.cli_runner import json_lines, run
from commands.model_app import run_model, tiny_model
from support.reports import empty_recipe
from support.topics import QUICK_TO_START

from enricher.errors import FatalError, ModelError, SettingsError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.sessions import openvino_problem
from enricher.worker.inference.graph.int8 import Recipe, read_recipe, write_recipe
from enricher.worker.inference.graph.padded import OpenVinoInt8
from enricher.workshop import calibration
from enricher.workshop.calibration import DEFAULT_TEXTS, read_texts
from enricher.workshop.gate.gold import DEFAULT_GOLD, read_gold
from enricher.workshop.gate.report import GateReport
from enricher.workshop.prepared_folder import Manifest

needs_openvino = pytest.mark.skipif(openvino_problem("fp32") is not None, reason=f"{openvino_problem('fp32')}")
pytestmark = needs_openvino
ARTICLES, BODY_CHARS = 6, 400


@pytest.fixture(autouse=True, scope="module")
def skill_is_not_needed() -> Iterator[None]:
    """The small model learned nothing; and its calibration is the same on every processor, only not faster on all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("enricher.workshop.gate.verdict.LEAST_REFERENCE_F1", 0.0)
        patch.setattr(OpenVinoInt8, "problem", lambda _self: openvino_problem("fp32"))
        patch.setattr(calibration, "DEFAULT_TARGET", 0.0)
        yield


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small model."""
    return tiny_model(tmp_path / "tiny")


@pytest.fixture(scope="module")
def gold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some labelled sentences."""
    path = tmp_path_factory.mktemp("gold") / "gold.jsonl"
    path.write_bytes(b"".join(DEFAULT_GOLD.read_bytes().splitlines(keepends=True)[:6]))
    return path


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some short articles, without labels."""
    path = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    whole = (json.loads(line) for line in DEFAULT_TEXTS.read_bytes().splitlines()[:ARTICLES])
    path.write_text(json_lines(*({**each, "body": each["body"][:BODY_CHARS]} for each in whole)), "utf-8")
    return path


def prepare(source: Path, out: Path, gold: Path, *more: str | Path, precision: str = "int8") -> Any:  # noqa: ANN401  typer's result
    """Run the command with a gate that lets everything pass."""
    options = ("--precision", precision, "--gold", gold, "--limit-points", "100", *more)
    return run_model("prepare", source, "--out", out, "--device", "cpu", *options, cache_dir=out.parent / "cache")


def recipe_in(folder: Path) -> Recipe:
    """The recipe of a prepared folder."""
    recipe = read_recipe(folder)
    assert recipe is not None
    return recipe


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared folder, whose source is gone; what the command said, and the digest of the model."""

    folder: Path
    said: str
    digest: str


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, gold: Path, texts: Path) -> Prepared:
    """The small model, calibrated on the texts."""
    root = tmp_path_factory.mktemp("prepared")
    source = tiny_model(root / "tiny")
    digest = Checkpoint.open(source).digest
    result = prepare(source, root / "out", gold, "--calibrate", texts)
    assert result.exit_code == 0, (result.output, result.exception)
    shutil.rmtree(source)
    return Prepared(root / "out", result.stderr, digest)


def test_a_prepared_folder_has_the_recipe_the_report_and_the_graph(prepared: Prepared) -> None:
    """The report is about this recipe."""
    out, recipe = prepared.folder, recipe_in(prepared.folder)
    assert ("texts", ARTICLES, prepared.digest) == (recipe.texts.name, recipe.texts.number, recipe.model_digest)
    report = GateReport.model_validate_json((out / "gate-openvino-int8.json").read_bytes())
    assert recipe.digest == report.bound_to.recipe_digest
    (graph,) = (out / "graphs").iterdir()
    assert graph.name.endswith(recipe.digest[:16])
    assert "calibrating int8 on the sample articles" not in prepared.said
    assert re.search(
        r"int8: \d+ of \d+ products of the encoder, calibrated on 6 texts of texts \(seed 0\)", prepared.said
    )


def test_a_prepared_folder_runs_without_its_source_and_without_a_cache(
    prepared: Prepared, texts: Path, tmp_path: Path
) -> None:
    """In a worker, by its path: every record says int8, and nothing is built."""
    cache, records = tmp_path / "empty", tmp_path / "records.jsonl"
    model = {"SOURCE": str(prepared.folder), "DEVICE": "cpu", "CACHE_DIR": str(cache)}
    settings = {**QUICK_TO_START, **{f"ENRICHER_MODEL__{name}": value for name, value in model.items()}}
    result = run("enrich", str(texts), "--out", str(records), env=settings)
    assert result.exit_code == 0, (result.output, result.exception)
    precisions = [json.loads(line)["model"]["precision"] for line in records.read_bytes().splitlines()]
    assert ["int8"] * ARTICLES == precisions
    assert [] == list(cache.glob("*-openvino-*"))


def test_a_valid_recipe_is_kept_unless_another_is_asked_for(
    source: Path, gold: Path, texts: Path, tmp_path: Path
) -> None:
    """Preparing a prepared folder again must not change what was judged; a recipe of another model is replaced."""
    mine = empty_recipe(Checkpoint.open(source))
    write_recipe(source, mine)
    assert 0 == prepare(source, tmp_path / "kept", gold).exit_code
    assert mine == recipe_in(tmp_path / "kept")
    assert 0 == prepare(source, tmp_path / "asked", gold, "--calibrate", texts).exit_code
    assert ARTICLES == recipe_in(tmp_path / "asked").texts.number
    write_recipe(source, empty_recipe(Checkpoint.open(source), model_digest="1" * 64))
    assert 0 == prepare(source, tmp_path / "replaced", gold, "--calibrate", texts).exit_code
    assert Checkpoint.open(source).digest == recipe_in(tmp_path / "replaced").model_digest


def test_auto_calibrates_on_the_sample_and_says_when_it_is_too_small(
    source: Path, gold: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option for other languages and domains is named."""
    monkeypatch.setattr(calibration, "MOST_TOKENS", 20_000)  # the small model has a token for each letter
    out = tmp_path / "out"
    result = prepare(source, out, gold, precision="auto")
    assert result.exit_code == 0, (result.output, result.exception)
    assert ("wikinews", 43) == (recipe_in(out).texts.name, recipe_in(out).texts.number)
    assert "For another language or domain, give some tens of your own with --calibrate" in result.stderr
    assert "int8" == Manifest.model_validate_json((out / "manifest.json").read_bytes()).precision
    shown = run_model("inspect", out, "--device", "cpu", "--json", cache_dir=tmp_path / "cache")
    assert "calibrated on 43 texts of wikinews" in json.loads(shown.stdout)["int8_recipe"]


@pytest.mark.parametrize(
    ("texts_of", "precision", "error", "message"),
    [
        (
            "some of the gold set",
            "int8",
            SettingsError,
            r"mine.jsonl and the gold set gold share .* \(line 4\).*Remove",
        ),
        ("nobody", "int8", ModelError, "too few"),
        ("a careless author", "int8", FatalError, "mine.jsonl, line 4: not an article"),
        ("an unknown author", "int8", FatalError, "cannot be read"),
        ("some authors", "fp32", SettingsError, "--precision is fp32"),
    ],
)
def test_texts_that_cannot_calibrate_are_refused(
    source: Path, gold: Path, tmp_path: Path, texts_of: str, precision: str, error: type[Exception], message: str
) -> None:
    """Before anything is copied. Sentences of the gold set are known by what they say, not by their file.

    They are found in another case and layout, and inside a longer text.
    """
    sentence = json.loads(gold.read_bytes().splitlines()[0])["text"]
    shared = f"Something else first.\n{sentence.upper().replace(',', ' ,')}  And more."
    some = [json.loads(line) for line in DEFAULT_TEXTS.read_bytes().splitlines()[:3]]
    lines = {
        "some of the gold set": [*some, {"id": "x", "body": shared}],
        "nobody": [],
        "a careless author": [*some, {"id": "x"}],
        "some authors": some,
    }
    path, out = tmp_path / "mine.jsonl", tmp_path / "out"
    if texts_of in lines:
        path.write_text(json_lines(*lines[texts_of]), "utf-8")
    result = prepare(source, out, gold, "--calibrate", path, precision=precision)
    assert isinstance(result.exception, error)
    assert re.search(message, " ".join(str(result.exception).split()))
    assert not out.exists()
    assert "copying" not in result.stderr


def test_the_sample_articles_are_refused_for_a_gold_set_made_of_them(source: Path, tmp_path: Path) -> None:
    """The message says that others can be named; and a recipe that was made from them cannot be checked on it either."""
    sentences = re.split(r"(?<=\.)\s+", json.loads(DEFAULT_TEXTS.read_text("utf-8").splitlines()[0])["body"])
    sentence = max(sentences, key=len)
    gold = tmp_path / "gold.jsonl"
    gold.write_text(json.dumps({"text": sentence, "entities": [{"start": 0, "end": 3, "label": "PER"}]}) + "\n")
    error = prepare(source, tmp_path / "out", gold).exception
    assert isinstance(error, SettingsError)
    assert "the sample articles, which int8 is calibrated on by default" in str(error)
    assert "--calibrate" in str(error)
    calibrated_on(source, DEFAULT_TEXTS)
    error = run_model("check", source, "--precision", "int8", "--gold", gold, cache_dir=tmp_path / "cache").exception
    assert isinstance(error, SettingsError)
    assert "share sentences" in str(error)
    assert "choose another --gold, or --precision bf16" in str(error)


def calibrated_on(source: Path, texts: Path) -> None:
    """A valid recipe that says that it was made from these texts."""
    recipe = empty_recipe(Checkpoint.open(source))
    digest = hashlib.sha256(texts.read_bytes()).hexdigest()
    write_recipe(source, recipe.model_copy(update={"texts": recipe.texts.model_copy(update={"digest": digest})}))


@pytest.mark.skipif(openvino_problem("bf16") is not None, reason=f"{openvino_problem('bf16')}")
def test_auto_goes_on_to_bf16_where_int8_was_calibrated_on_the_gold_set(
    source: Path, gold: Path, tmp_path: Path
) -> None:
    """The next precision is checked, and the reason is told."""
    calibrated_on(source, gold)
    options = ("--gold", gold, "--device", "cpu", "--limit-points", "100", "--out", tmp_path / "reports")
    result = run_model("check", source, *options, cache_dir=tmp_path / "cache")
    assert result.exit_code == 0, (result.output, result.exception)
    assert "not openvino-int8: int8 was calibrated on the gold set" in " ".join(result.stderr.split())
    assert ["gate-openvino-bf16.json"] == [path.name for path in (tmp_path / "reports").glob("*.json")]


def test_int8_that_was_calibrated_on_the_gold_set_is_refused(source: Path, gold: Path, tmp_path: Path) -> None:
    """By the digest, also when the texts are gone: by `prepare` before anything is copied, and by `check`."""
    calibrated_on(source, gold)
    cache = tmp_path / "cache"
    prepared = prepare(source, tmp_path / "out", gold)
    checked = run_model("check", source, "--precision", "int8", "--gold", gold, cache_dir=cache)
    for result in (prepared, checked):
        assert isinstance(result.exception, SettingsError)
        assert "calibrated on the gold set gold itself" in str(result.exception)
    assert "copying" not in prepared.stderr


def test_texts_are_named_by_the_digest_of_their_file(gold: Path, texts: Path, tmp_path: Path) -> None:
    """Also if it is packed; a pipe, which could not be read twice, is refused."""
    pipe, packed = tmp_path / "pipe", tmp_path / "packed"
    packed.write_bytes(gzip.compress(texts.read_bytes()))
    found = read_texts(packed, read_gold(gold)).file
    assert (hashlib.sha256(packed.read_bytes()).hexdigest(), ARTICLES) == (found.digest, found.number)
    os.mkfifo(pipe)
    with pytest.raises(FatalError, match="cannot be read: there is no such file, or it is none"):
        read_texts(pipe, read_gold(gold))


def test_texts_are_read_by_the_settings_and_the_sample_where_it_lies(
    gold: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The articles of the topic look like those that are calibrated on; the sample articles are ours."""
    monkeypatch.setenv("ENRICHER_ARTICLES__FIELDS", '{"id": "key", "body": "/content/text"}')
    own = tmp_path / "own.jsonl"
    own.write_text('{"id": "a", "content": {"text": ["It rained.", "It snowed."]}}\n', "utf-8")
    assert ["It rained.\n\nIt snowed."] == [each.body for each in read_texts(own, read_gold(gold)).articles]
    samples = read_texts(None, read_gold(gold))
    assert samples.file.number == len(samples.articles) == len(DEFAULT_TEXTS.read_bytes().splitlines())


def test_calibration_where_int8_cannot_run_is_an_error(
    source: Path, gold: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is not used would be a mistake that nobody notices."""
    monkeypatch.setattr(OpenVinoInt8, "problem", lambda _self: "the processor has neither VNNI nor AMX")
    error = prepare(source, tmp_path / "out", gold, "--calibrate", texts, precision="auto").exception
    assert isinstance(error, ModelError)
    assert "because its gate cannot run: the processor has neither VNNI nor AMX" in str(error)
    result = prepare(source, tmp_path / "out", gold, precision="auto")
    assert result.exit_code == 0, (result.output, result.exception)
    assert read_recipe(tmp_path / "out") is None
