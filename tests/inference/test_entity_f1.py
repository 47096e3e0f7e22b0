"""What all of it is for: the worker's entities on labelled raw text, by exact characters, with both kinds of pieces."""

from __future__ import annotations

from pathlib import Path

import pytest

from enricher.worker.inference.run.model import PreparedModel, prepare
from enricher.workshop.evaluate import evaluate, gold_of
from enricher.workshop.gate.gold import DEFAULT_GOLD

SHARED = Path(__file__).parents[3] / "shared"
MULTILINGUAL = SHARED / "models" / "newswire-e5"

pytestmark = pytest.mark.slow


def f1_of(model: PreparedModel, gold: Path, folder: Path, *, first: int, step: int) -> float:
    """The F1 on some of the gold texts, spread evenly."""
    sample = folder / "sample.jsonl"
    sample.write_bytes(b"".join(gold.read_bytes().splitlines(keepends=True)[first::step]))
    share = evaluate(model, gold_of(model.checkpoint.head, sample), lambda *_: None).overall.f1
    assert share is not None
    return share.value


def test_entities_of_word_pieces_are_as_good_as_measured(minilm: PreparedModel, tmp_path: Path) -> None:
    """The sample had 0.708, all of PUD 0.706; with words that white space ends, all of it had 0.410."""
    assert f1_of(minilm, DEFAULT_GOLD, tmp_path, first=0, step=4) >= 0.704


@pytest.mark.skipif(not MULTILINGUAL.is_dir(), reason="the multilingual checkpoint is not beside this checkout")
@pytest.mark.parametrize(
    ("gold", "first", "step", "least"),
    [("pud.jsonl", 0, 6, 0.755), ("de_pud.jsonl", 1, 6, 0.771), ("zh_gsd.jsonl", 2, 4, 0.632)],
)
def test_entities_of_sentence_pieces_are_as_good_as_measured(
    gold: str, first: int, step: int, least: float, tmp_path: Path, cache_dir: Path
) -> None:
    """The samples had 0.760, 0.776 and 0.638; all texts have 0.769, 0.757 and 0.621, and had 0.455, 0.585 and 0.000."""
    model = prepare(str(MULTILINGUAL), device="cpu", precision="fp32", cache_dir=cache_dir)
    assert f1_of(model, SHARED / "gold" / gold, tmp_path, first=first, step=step) >= least
