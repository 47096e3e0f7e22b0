"""`enricher model evaluate`: figures, what cannot be judged, and gold sets that cannot be used."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from commands.model_app import run_model, tiny_model
from support.heads import class_model, vector_model

from enricher.errors import FatalError, ModelError, SettingsError
from enricher.worker.inference.run.model import EMBEDDED
from enricher.workshop.gate.gold import DEFAULT_GOLD, read_gold

FP32 = ("--device", "cpu", "--precision", "fp32")


def gold_file(folder: Path, *lines: object) -> Path:
    """The lines as a gold set."""
    path = folder / "gold.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_figures_are_those_of_the_gold_set(tmp_path: Path) -> None:
    """Counts by label add up, F1 follows from them, shares lie in their intervals."""
    gold = tmp_path / "gold.jsonl"
    gold.write_bytes(b"".join(DEFAULT_GOLD.read_bytes().splitlines(keepends=True)[:80]))
    result = run_model("evaluate", EMBEDDED, "--gold", gold, *FP32, "--json", cache_dir=tmp_path / "cache")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    overall, by_label = found["overall"], found["by_label"]
    assert sum(len(each.entities) for each in read_gold(gold).texts) == overall["expected"]
    for count in ("right", "predicted", "expected"):
        assert (
            overall[count] == sum(each[count] for each in by_label) == sum(each[count] for each in found["by_length"])
        )
    assert 2 * overall["right"] / (overall["predicted"] + overall["expected"]) == pytest.approx(overall["f1"]["value"])
    assert 0.5 < overall["f1"]["low"] < overall["f1"]["value"] < overall["f1"]["high"] < 1


def test_classes_are_measured_too(tmp_path: Path) -> None:
    """Each text has one, so as many are found as expected, and each error counts for two classes."""
    model = class_model(tiny_model(tmp_path / "ner"), tmp_path / "topics", ("<b>", "\u202ex", "c"))
    gold = gold_file(tmp_path, *({"text": f"Story {number}", "label": "<b>"} for number in range(10)))
    arguments = ("--gold", gold, *FP32, "--json")
    result = run_model("evaluate", model, *arguments, cache_dir=tmp_path / "cache")
    assert result.exit_code == 0, result.output
    overall = json.loads(result.stdout)["overall"]
    assert 10 == overall["expected"] == overall["predicted"]


def test_long_texts_and_a_model_that_finds_nothing_are_measured(tmp_path: Path) -> None:
    """100,000 characters in one text; where nothing is found there is no precision, and a sentence says so."""
    model = tiny_model(tmp_path / "tiny")
    config = json.loads((model / "config.json").read_bytes())
    config["id2label"] = dict.fromkeys(config["id2label"], "O") | {"0": "B-PER"}
    (model / "config.json").write_text(json.dumps(config))
    text = "a b c d " * 12_500
    gold = gold_file(tmp_path, {"text": text, "entities": [{"start": 99_990, "end": 99_991, "label": "PER"}]})
    result = run_model("evaluate", model, "--gold", gold, *FP32, "--json", cache_dir=tmp_path / "cache")
    assert result.exit_code == 0, (result.output, result.exception)
    found = json.loads(result.stdout)
    assert 1 == found["overall"]["expected"]
    assert ["1025+"] == [each["name"] for each in found["by_length"]]


def test_what_cannot_be_measured_is_refused(tmp_path: Path) -> None:
    """A model that gives no labels, one that is none, labels that it does not have, and an empty file."""
    tiny = tiny_model(tmp_path / "tiny")
    odd = shutil.copytree(tiny, tmp_path / "odd")
    (odd / "config.json").write_text((odd / "config.json").read_text().replace('-PER"', '-\\ud800PER"'))
    gold = gold_file(tmp_path, {"text": "In Rome", "entities": [{"start": 3, "end": 7, "label": "<i>"}]})
    for model, error, message in (
        (vector_model(tiny, tmp_path / "vectors"), SettingsError, "only entities and classes"),
        (tmp_path, ModelError, "config.json"),
        (odd, ModelError, "half a surrogate pair"),
        (tiny, FatalError, r"line 1: entities.0.label: .*'<i>'"),
    ):
        with pytest.raises(error, match=message):
            raise run_model("evaluate", model, "--gold", gold, *FP32, cache_dir=tmp_path / "cache").exception or OSError
    gold.write_text("")
    with pytest.raises(FatalError, match="is empty"):
        raise run_model("evaluate", tiny, "--gold", gold, *FP32, cache_dir=tmp_path).exception or OSError
