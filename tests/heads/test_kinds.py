"""A kind of head is whole, known to every place that CONTRIBUTING.md names; and a toy needs no change elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import orjson
import pytest
from commands.cli_runner import json_lines, run
from commands.model_app import tiny_model
from safetensors.numpy import load_file, save_file
from support.heads import class_model
from support.offenders import assert_none

from enricher.answers import Record
from enricher.errors import SettingsError
from enricher.indexing.index_template import index_template
from enricher.worker.heads import KINDS
from enricher.worker.heads.head import Head, HeadFiles, HeadSpec, Layers, Threshold
from enricher.worker.heads.languages import Languages
from enricher.worker.records import OwnedRow, TaskCard, TaskKind, Ticket
from enricher.workshop.evaluate import require_labels
from enricher.workshop.gate.quality_gate import YARDSTICKS


@dataclass(frozen=True, slots=True)
class CountHead(Head):
    """Counts the tokens that the model saw."""

    kind: ClassVar[TaskKind] = "count"
    listed_in: ClassVar[str] = "counts"
    layers: ClassVar[Layers] = "none"
    compares: ClassVar[bool] = False

    @classmethod
    def recognises(cls, files: HeadFiles) -> bool:
        """Its own word for what its values mean."""
        return files.config.get("problem_type") == "count"

    @classmethod
    def read_spec(cls, files: HeadFiles) -> tuple[HeadSpec, tuple[str, ...]]:
        """The first hidden state of a window; its values are not read."""
        width = files.config["hidden_size"]
        return HeadSpec(cls.kind, (), multi_label=False, reads="first", normalised=False, dimensions=width), ()

    @classmethod
    def for_task(
        cls, spec: HeadSpec, task: TaskCard, languages: Languages | None, threshold: Threshold, *, several: bool
    ) -> CountHead:
        """The head of a task."""
        del spec, threshold, several
        return cls(task, languages=languages)

    def find(self, ticket: Ticket, answers: list[OwnedRow]) -> list[dict[str, Any]]:
        """The sum over the windows, each token once."""
        del ticket
        return [{"task": self.task.name, "tokens": sum(each.tokens for each in answers)}]

    @classmethod
    def text_of(cls, listed: Sequence[Mapping[str, Any]]) -> str:
        """The count."""
        return ", ".join(f"{each['tokens']} tokens" for each in listed)


@pytest.mark.slow
@pytest.mark.usefixtures("shared_models")
def test_a_new_kind_of_head_goes_from_its_checkpoint_into_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside entities and classes on the same encoder, and in what `model inspect` says of it."""
    monkeypatch.setitem(KINDS, "count", CountHead)
    ner = tiny_model(tmp_path / "ner")
    topics = class_model(ner, tmp_path / "topics", ("a", "b"))
    size = class_model(ner, tmp_path / "size", ("any", "other"))
    config = json.loads((size / "config.json").read_text())
    (size / "config.json").write_text(json.dumps({**config, "problem_type": "count"}))
    weights = load_file(size / "model.safetensors")
    save_file({name: weights[name] for name in weights if "classifier" not in name}, size / "model.safetensors")
    tasks = {name: {"source": str(tmp_path / name)} for name in ("ner", "topics", "size")}
    Path("articles.jsonl").write_text(json_lines({"id": "a-1", "body": "ab " * 150}), "utf-8")
    environment = {
        "ENRICHER_TASKS": json.dumps(tasks),
        "ENRICHER_MODEL__PRECISION": "fp32",
        "ENRICHER_BATCHING__MAX_WINDOW_TOKENS": "96",
    }
    result = run("enrich", "articles.jsonl", "--out", "records.jsonl", env=environment)
    assert result.exit_code == 0, (result.output, result.exception)
    record = orjson.loads(Path("records.jsonl").read_bytes())
    assert [{"task": "size", "tokens": record["coverage"]["tokens"]}] == record["counts"]
    assert 300 == record["coverage"]["tokens"]
    assert record["coverage"]["windows"] > 1
    assert ["ner", "classification", "count"] == [each["kind"] for each in record["tasks"]]
    assert ("topics", 1) == (topics.name, len(record["classifications"]))


ROOT = Path(__file__).parents[2]


def missing(kind: type[Head]) -> Iterator[str]:
    """What a kind lacks, one line for each place."""
    name, field = kind.kind, kind.listed_in
    schemas = ROOT / "schemas"
    avro = {each["name"] for each in json.loads((schemas / "enriched-record.v1.avsc").read_text("utf-8"))["fields"]}
    plain = json.loads((schemas / "enriched-record.v1.schema.json").read_text("utf-8"))["properties"]
    for place, fields in (("enriched-record.v1.avsc", avro), ("enriched-record.v1.schema.json", plain)):
        if field not in fields:
            yield f"{name}: schemas/{place} has no field {field}"
    for place, words in (
        ("schemas/enriched-record.v1.proto", f" {field} = "),
        ("schemas/README.md", f"`{field}`"),
        ("deploy/tasks.md", f"\n| `{name}` |"),
        ("deploy/python.md", f"`record.{field}"),
        ("tests/support/records.py", f'"{name}"'),
    ):
        if words not in (ROOT / place).read_text("utf-8"):
            yield f"{name}: {place} lacks {words.strip()}"
    if not hasattr(Record, field):
        yield f"{name}: Record, in enricher/answers.py, has no property {field}"
    mapped = index_template("articles", "opensearch")["template"]["mappings"]["properties"]
    if field not in mapped and field != "embeddings":  # vectors are not searched
        yield f"{name}: the index template has no field {field}"
    if kind.compares != (name in YARDSTICKS):
        yield f"{name}: compares is {kind.compares}, and enricher/workshop/gate/quality_gate.py says otherwise"
    if kind.labelled != is_measured(name):
        yield f"{name}: labelled is {kind.labelled}, and enricher/workshop/evaluate.py says otherwise"


def is_measured(name: TaskKind) -> bool:
    """Whether findings of a kind are counted against a gold set."""
    try:
        require_labels([HeadSpec(name, (), multi_label=False, reads="first", normalised=False, dimensions=1)])
    except SettingsError:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_kind_is_known_wherever_kinds_are_named(kind: type[Head]) -> None:
    """Else its records could not be verified, searched or read, and nobody would notice."""
    assert_none(missing(kind))


def test_all_that_a_new_kind_lacks_is_named() -> None:
    """Negative control: the toy is known to no place."""
    found = list(missing(cast("type[Head]", CountHead)))
    assert 9 == len(found), found
