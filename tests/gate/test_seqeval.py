"""`enricher model evaluate` and seqeval's strict mode, about the same gold set and the same model."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest
from commands.model_app import run_model

from enricher import Enricher
from enricher.worker.inference.run.model import EMBEDDED
from enricher.workshop.gate.gold import DEFAULT_GOLD, read_gold

TEXTS = 150
AVERAGES = {"micro avg", "macro avg", "weighted avg"}

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_spec("seqeval") is None, reason="seqeval is not installed; scripts/test --all adds it"),
]


def tags_of(length_chars: int, spans: Iterable[tuple[int, int, str]]) -> list[str]:
    """A tag for each character, so that two entities are equal if their spans are."""
    tags = ["O"] * length_chars
    for start, end, label in spans:
        tags[start:end] = [f"B-{label}"] + [f"I-{label}"] * (end - start - 1)
    return tags


def test_the_scores_of_a_model_are_those_of_seqeval(tmp_path: Path) -> None:
    """Counts, precision, recall and F1, of all and of each label; seqeval gets its entities from the Python interface."""
    from seqeval.metrics import classification_report  # noqa: PLC0415  only scripts/test --all installs it
    from seqeval.scheme import IOB2  # noqa: PLC0415

    gold = tmp_path / "gold.jsonl"
    gold.write_bytes(b"".join(DEFAULT_GOLD.read_bytes().splitlines(keepends=True)[:TEXTS]))
    precision = ("--device", "cpu", "--precision", "fp32")
    result = run_model("evaluate", EMBEDDED, "--gold", gold, *precision, "--json", cache_dir=tmp_path / "cache")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    texts = read_gold(gold).texts
    with Enricher.load(device="cpu", precision="fp32") as enricher:
        answers = enricher.enrich({"id": str(at), "body": each.text} for at, each in enumerate(texts))
        records = [each for each in answers if each.reason is None]
    report = classification_report(
        [tags_of(len(each.text), ((span.start, span.end, span.label) for span in each.entities)) for each in texts],
        [
            tags_of(len(text.text), ((each.start, each.end, each.label) for each in record.entities))
            for text, record in zip(texts, records, strict=True)
        ],
        mode="strict",
        scheme=IOB2,
        output_dict=True,
    )
    ours = {each["name"]: each for each in (*found["by_label"], {**found["overall"], "name": "micro avg"})}
    assert ours.keys() == (report.keys() - AVERAGES) | {"micro avg"}
    for name, each in ours.items():
        scores = {measure: each[measure]["value"] for measure in ("precision", "recall", "f1")}
        theirs = {measure: report[name][f"{measure}-score" if measure == "f1" else measure] for measure in scores}
        assert scores == pytest.approx(theirs, abs=1e-12), name
        assert each["expected"] == report[name]["support"], name
    assert 0.5 < ours["micro avg"]["f1"]["value"] < 0.95
