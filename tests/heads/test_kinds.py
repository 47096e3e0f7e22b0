"""A kind of head is whole: every place that CONTRIBUTING.md names for one knows it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from heads.test_toy_head import CountHead
from support.offenders import assert_none

from enricher.answers import Record
from enricher.errors import SettingsError
from enricher.indexing.index_template import index_template
from enricher.worker.heads import KINDS, Head, HeadSpec
from enricher.worker.records import TaskKind
from enricher.workshop.evaluate import require_labels
from enricher.workshop.gate.quality_gate import YARDSTICKS

ROOT = Path(__file__).parents[2]
VERIFIER = "enricher/operate/verify"


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
        (f"{VERIFIER}/values.py", f'"{field}"'),
        ("tests/support/task_records.py", f'"{name}"'),
    ):
        if words not in (ROOT / place).read_text("utf-8"):
            yield f"{name}: {place} lacks {words.strip()}"
    if not hasattr(Record, field):
        yield f"{name}: Record, in enricher/answers.py, has no property {field}"
    if field not in template_fields() and field != "embeddings":  # vectors are not searched
        yield f"{name}: the index template has no field {field}"
    if kind.compares != (name in YARDSTICKS):
        yield f"{name}: compares is {kind.compares}, and enricher/workshop/gate/quality_gate.py says otherwise"
    if kind.labelled != is_measured(name):
        yield f"{name}: labelled is {kind.labelled}, and enricher/workshop/evaluate.py says otherwise"


def template_fields() -> set[str]:
    """The fields that the index knows."""
    template = index_template("articles", "opensearch")
    return {*template["template"]["mappings"]["properties"]}


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
    assert 10 == len(found), found
