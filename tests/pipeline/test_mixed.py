"""The check of `support.mixed` finds what is wrong: a worker that did nothing right would not pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.mixed.layouts import LAYOUTS, NESTED, PARAGRAPHS, SEPARATOR, Layout, Texts
from support.mixed.stage import Findings, Input, check_record

TEXTS = Texts()


def given(layout: Layout, form: str = "JSON") -> Input:
    """An input of this layout."""
    return Input(layout, form, 1, TEXTS.text(1), b"a-1", b"", [])


def right(each: Input) -> dict[str, Any]:
    """The record that belongs to it: the first word of the body is its only entity."""
    word = each.field("body").split()[0]
    entity = {"field": "body", "start": 0, "end": len(word), "text": word, "label": "PER"}
    return {**each.wanted, "entities": [entity]}


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_the_right_record_passes(layout: Layout) -> None:
    """In every layout."""
    findings, each = Findings(), given(layout)
    check_record(findings, right(each), each)
    assert {} == findings.counts


@pytest.mark.parametrize(
    ("harm", "found"),
    [
        (lambda record: record.update(id="a-2"), "with other fields"),
        (lambda record: record.pop("language"), "with other fields"),
        (lambda record: record["metadata"].update(desk_number="7"), "with other fields"),
        (lambda record: record.update(source="nobody"), "with other fields"),
        (lambda record: record["entities"][0].update(start=1), "with entities elsewhere"),
        (lambda record: record["entities"][0].update(field="title"), "with entities elsewhere"),
        (lambda record: record["entities"][0].update(text="other"), "with entities elsewhere"),
    ],
)
def test_a_wrong_record_is_found(harm: Callable[[dict[str, Any]], object], found: str) -> None:
    """Ids, fields, types of metadata, offsets, texts."""
    findings, each = Findings(), given(NESTED)
    record = json.loads(json.dumps(right(each)))
    harm(record)
    check_record(findings, record, each)
    assert {found: 1} == findings.counts


def test_offsets_count_in_the_joined_text_in_code_points() -> None:
    """An offset behind the first paragraph's last character, which takes two units of UTF-16 and four bytes of UTF-8."""
    findings, each = Findings(), given(PARAGRAPHS)
    first, second = each.text.paragraphs
    start = len(first) + len(SEPARATOR)
    word = second.split()[0]
    entity = {"field": "body", "start": start, "end": start + len(word), "text": word, "label": "PER"}
    check_record(findings, {**each.wanted, "entities": [entity]}, each)
    assert {} == findings.counts
    assert first.endswith("\N{ROCKET}")
