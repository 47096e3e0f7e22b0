"""`enricher.json`: the windows that suit a model, which a worker serves and the gate judges."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands.model_app import tiny_model

from enricher.errors import ModelError, SettingsError
from enricher.worker.inference.run.advice import ADVICE_FILE, Advice, advice_for, measured_languages
from enricher.worker.inference.run.model import EMBEDDED_FOLDER, open_model
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import Partition, RawRecord, Ticket
from enricher.worker.rules.windowing import WindowCutter
from enricher.worker.settings import Settings
from enricher.worker.wiring.loaded_tasks import load_tasks, window_cutter
from enricher.workshop.gate.gold import GoldSet, join_texts
from enricher.workshop.gate.runs import TokenizedTexts, tokenize_texts
from tools.worker_parts import load_model


def write(folder: Path, **values: object) -> Path:
    """Write the file."""
    (folder / ADVICE_FILE).write_text(json.dumps(values))
    return folder


@pytest.mark.parametrize(
    ("values", "limit", "advice"),
    [
        (None, 512, (256, 64)),
        (None, 160, (160, 40)),  # never longer than the model's own limit
        (None, 128, (128, 32)),  # the default overlap suits short windows: the model starts without further settings
        ({"max_window_tokens": 100}, 512, (100, 25)),
        ({"max_window_tokens": 100, "overlap_tokens": 60}, 512, (100, 60)),
    ],
)
def test_windows_are_those_of_the_file_within_what_the_model_takes(
    values: dict[str, int] | None, limit: int, advice: tuple[int, int], tmp_path: Path
) -> None:
    """By default a quarter of a window is shared."""
    found = advice_for(tmp_path if values is None else write(tmp_path, **values), limit)
    assert Advice(max_window_tokens=advice[0], overlap_tokens=advice[1]) == found


def test_languages_are_those_that_the_file_names(tmp_path: Path) -> None:
    """There are none without a file; a file that names some says which were measured."""
    assert measured_languages(tmp_path) == ()
    assert ("de", "en") == measured_languages(write(tmp_path, languages={"measured": ["de", "en"]}))
    with pytest.raises(ModelError, match=r"languages\.measured: Field required"):
        measured_languages(write(tmp_path, languages={"trained": ["en"]}))
    assert ("de", "en", "zh") == measured_languages(EMBEDDED_FOLDER)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small model, which a worker is to serve."""
    folder = tiny_model(tmp_path / "model")
    monkeypatch.setenv("ENRICHER_MODEL__SOURCE", str(folder))
    monkeypatch.setenv("ENRICHER_MODEL__PRECISION", "fp32")
    monkeypatch.setenv("ENRICHER_MODEL__CACHE_DIR", str(tmp_path / "cache"))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("in_a_task", [False, True], ids=["without tasks", "in a task"])
def test_advice_is_cut_to_what_the_tokenizer_takes(
    model: Path, monkeypatch: pytest.MonkeyPatch, *, in_a_task: bool
) -> None:
    """Whose limit shows only when it is loaded."""
    write(model, max_window_tokens=128)
    config = json.loads((model / "tokenizer_config.json").read_text("utf-8"))
    (model / "tokenizer_config.json").write_text(json.dumps({**config, "model_max_length": 48}))
    if in_a_task:
        monkeypatch.delenv("ENRICHER_MODEL__SOURCE")
        monkeypatch.setenv("ENRICHER_TASKS", json.dumps({"names": {"source": str(model)}}))
    served = load_tasks(Settings())
    assert 48 == window_cutter(served.settings, served.model).max_window_tokens


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"max_windows": 3}, "max_windows: .* a JSON object with max_window_tokens"),
        ({"max_window_tokens": "128"}, "max_window_tokens: .* integer"),
        ({"overlap_tokens": -1}, "overlap_tokens: .* greater than or equal to 0"),
        ([], f"{ADVICE_FILE}: Input should be an object"),  # nothing stands where a field's name would
    ],
)
def test_a_malformed_file_is_refused_with_the_reason(tmp_path: Path, values: object, problem: str) -> None:
    """It is not ignored, because its author wanted it to have an effect."""
    (tmp_path / ADVICE_FILE).write_text(json.dumps(values))
    with pytest.raises(ModelError, match=problem):
        advice_for(tmp_path, 512)


def tokenized_for(folder: Path, gold: GoldSet) -> TokenizedTexts:
    """The gold set as long documents, as the gate runs them through the model in `folder`."""
    checkpoint = open_model(folder)
    tokenizer = ArticleTokenizer(checkpoint)
    return tokenize_texts(checkpoint, tokenizer, join_texts(gold.texts))


def windows_of(cutter: WindowCutter, texts: TokenizedTexts) -> list[tuple[list[int], int, int]]:
    """The ids and the owned tokens of every window."""
    parts = [Ticket(RawRecord(Partition("gold", 0), 0, None, None), 0.0) for _ in texts.tokens]
    pairs = zip(parts, texts.tokens, strict=True)
    cut = [window for ticket, tokens in pairs for window in cutter.cut(ticket, tokens, 0.0)]
    return [(window.ids.tolist(), window.own_start, window.own_stop) for window in cut]


@pytest.mark.slow
@pytest.mark.parametrize(
    "advice",
    [
        {},
        {"max_window_tokens": 128, "overlap_tokens": 16},
        {"max_window_tokens": 128, "overlap_tokens": 60},
        {"max_window_tokens": 64, "overlap_tokens": 0},
    ],
    ids=["none", "as newswire-minilm", "an overlap above a quarter", "no overlap"],
)
def test_the_gate_cuts_the_windows_that_a_worker_serves(advice: dict[str, int], gold: GoldSet, model: Path) -> None:
    """Whatever `enricher.json` says: the gate capped the overlap at a quarter of a window once."""
    write(model, **advice)
    settings = Settings()
    served, texts = window_cutter(settings, load_model(settings)), tokenized_for(model, gold)
    judged = texts.cutter
    assert (served.max_window_tokens, served.overlap_tokens) == (judged.max_window_tokens, judged.overlap_tokens)
    assert windows_of(served, texts) == windows_of(judged, texts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("advice", "why"),
    [
        ({"max_window_tokens": 128, "overlap_tokens": 64}, "overlap_tokens is 64, more than half of a window of 128"),
        ({"max_window_tokens": 2}, "a window of 2 tokens holds no text"),  # but for two special ones
    ],
)
def test_windows_that_no_worker_serves_are_not_judged_either(
    advice: dict[str, int], why: str, gold: GoldSet, model: Path
) -> None:
    """The worker refuses to start with them, and the gate refuses them for the same reason."""
    write(model, **advice)
    with pytest.raises(SettingsError, match=why):
        load_model(Settings())
    with pytest.raises(SettingsError, match=why):
        tokenized_for(model, gold)
