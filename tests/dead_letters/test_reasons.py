"""Every reason of a dead letter has a message and is explained, and strangers make no more of them.

That every message of the reader has a reason is checked wherever the tests of articles make it refuse one
(`tests/support/reasons.py`).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import any_text

from enricher.worker.records import reason_of
from enricher.worker.records.reasons import BROKER_REFUSES, MODEL_FAILS, OTHER, OWN_ANSWER, OWN_CODE_FAILS, REASONS

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "enricher" / "worker"
PAGE = ROOT / "deploy" / "dead-letters.md"
OF_OTHERS = {OWN_CODE_FAILS, OWN_ANSWER, MODEL_FAILS, BROKER_REFUSES, OTHER}


def test_every_reason_stands_in_the_code() -> None:
    """Its longest words do: a message in other words, or one that is gone, leaves a reason behind."""
    code = "".join(path.read_text("utf-8") for path in WORKER.rglob("*.py") if path.name != "reasons.py")
    joined = re.sub(r'"\s*\n\s*f?"', "", code)
    longest = {reason: max(reason.split("..."), key=len).strip() for reason in REASONS if reason not in OF_OTHERS}
    assert {} == {reason: words for reason, words in longest.items() if words not in joined}


@pytest.mark.parametrize("reason", [each for each in REASONS if "..." in each])
def test_no_reason_hides_behind_an_earlier_one(reason: str) -> None:
    """Whatever the values are, the first reason that fits is the message's own."""
    for value in ("7", "'x y'", "", "\n", "a: b, c"):
        assert reason == reason_of("decode", "InvalidArticle", reason.replace("...", value))


def test_what_others_say_is_a_reason_by_where_it_was_said() -> None:
    """The texts of ONNX Runtime, of the broker and of a team's own code are theirs."""
    assert OWN_CODE_FAILS == reason_of("transform", "ValueError", "id is missing")
    assert OWN_ANSWER == reason_of("transform", "InvalidArticle", "what articles.transform returns: a list, not a dict")
    assert MODEL_FAILS == reason_of("inference", "RuntimeException", "[ONNXRuntimeError] : 6 : ...")
    assert BROKER_REFUSES == reason_of("publish", "RefusedOutput", "Broker: Message size too large")
    assert OTHER == reason_of("publish", "Nonsense", "Broker: Message size too large")


@given(st.lists(any_text(max_size=40), max_size=4), st.sampled_from(REASONS))
def test_strangers_make_no_reasons(texts: list[str], reason: str) -> None:
    """Whatever is written into a message, the reason is one of ours."""
    assert reason_of("decode", "InvalidArticle", reason.join(texts)) in REASONS


def test_the_page_explains_every_reason() -> None:
    """With its cause and its cure, and no others."""
    section = PAGE.read_text("utf-8").partition("\n## Reasons\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    explained = [text for row in rows for text in re.findall(r"`([^`]+)`", row[0])]
    assert sorted(REASONS) == sorted(explained)
    assert all(len(row) == 3 and row[1].strip() and row[2].strip(" |") for row in rows)
