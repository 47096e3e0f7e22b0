"""The gate judges the windows that a worker serves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands.model_app import tiny_model

from enricher.errors import SettingsError
from enricher.worker.inference.run.advice import ADVICE_FILE
from enricher.worker.inference.run.model import open_model
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import Partition, RawRecord, Ticket
from enricher.worker.rules.windowing import WindowCutter
from enricher.worker.settings import Settings
from enricher.worker.wiring.loaded_tasks import window_cutter
from enricher.workshop.gate.gold import GoldSet, join_texts
from enricher.workshop.gate.runs import TokenizedTexts, tokenize_texts
from tools.worker_parts import load_model


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
def test_the_gate_cuts_the_windows_that_a_worker_serves(
    advice: dict[str, int], gold: GoldSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever `enricher.json` says: the gate capped the overlap at a quarter of a window once."""
    folder = tiny_model(tmp_path / "model")
    (folder / ADVICE_FILE).write_text(json.dumps(advice))
    monkeypatch.setenv("ENRICHER_MODEL__SOURCE", str(folder))
    monkeypatch.setenv("ENRICHER_MODEL__PRECISION", "fp32")
    monkeypatch.setenv("ENRICHER_MODEL__CACHE_DIR", str(tmp_path / "cache"))
    settings = Settings()
    served, texts = window_cutter(settings, load_model(settings)), tokenized_for(folder, gold)
    assert (served.max_window_tokens, served.overlap_tokens) == (
        texts.cutter.max_window_tokens,
        texts.cutter.overlap_tokens,
    )
    assert windows_of(served, texts) == windows_of(texts.cutter, texts)


def test_windows_that_no_worker_serves_are_not_judged_either(gold: GoldSet, tmp_path: Path) -> None:
    """The worker refuses to start with them, and the gate refuses them for the same reason."""
    folder = tiny_model(tmp_path / "model")
    (folder / ADVICE_FILE).write_text(json.dumps({"max_window_tokens": 128, "overlap_tokens": 64}))
    with pytest.raises(SettingsError, match="overlap_tokens is 64, more than half of a window of 128 tokens"):
        tokenized_for(folder, gold)
