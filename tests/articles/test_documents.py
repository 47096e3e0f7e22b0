"""Articles of Python programs: what a mapping says, the same article as bytes says; refusals name field and cause."""

from __future__ import annotations

import datetime as dt
import json
from collections import UserDict
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import any_text

from enricher.errors import InvalidArticle
from enricher.worker.articles.documents import json_bytes
from tools.worker_parts import decode_article

CANARY = "xyzzycanary"
Word = Enum("Word", {"ID": "id"}, type=str)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False)
    | any_text(max_size=6) | st.sampled_from(["\ud83d", 2**1100]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text(max_size=3), inner, max_size=3),
    max_leaves=9,
)  # fmt: skip


def answer(value: Any) -> object:  # noqa: ANN401  any article
    """The article, or None if it is refused."""
    try:
        return decode_article(json_bytes(value), max_article_chars=1_000)
    except InvalidArticle:
        return None


@given(st.dictionaries(st.sampled_from(["id", "title", "body", "url", "x"]), values, max_size=5))
def test_a_mapping_and_the_same_article_as_bytes_have_one_answer(document: dict[str, Any]) -> None:
    """Integers of any size, lone surrogates and all: the same article, or refused in both ways."""
    as_bytes = json.dumps(document).encode()
    assert answer(as_bytes) == answer(document) == answer(UserDict(document))
    if answer(as_bytes):
        assert orjson.loads(as_bytes) == orjson.loads(json_bytes(document))


@pytest.mark.parametrize(("levels", "is_written"), [(250, True), (254, True), (255, False), (1_024, False)])
def test_a_mapping_may_have_254_levels(levels: int, *, is_written: bool) -> None:
    """Also where the fast way is left; what is deeper is refused by its place."""
    inner: Any = "x"
    for number in range(levels - 1):
        inner = [inner] if number % 2 else {"a": inner}
    for document in ({"x": inner}, {"large": 2**70, "x": inner}):
        if is_written:
            assert inner == orjson.loads(json_bytes(document))["x"]
        else:
            with pytest.raises(InvalidArticle, match=r"the article has more than 254 levels at /x/"):
                json_bytes(document)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.array(["one", "two"]), ["one", "two"]),
        (np.array(["one", None], object), ["one", None]),
        (np.array([[1, 2], [3, 4]]).T, [[1, 3], [2, 4]]),
        (np.array([1, 2], ">i4"), [1, 2]),
        (np.array(3), 3),
        (np.array([b"x"]), ["x"]),
        (np.array(["2026-03-01T12:00:00", "NaT"], "datetime64[ns]"), ["2026-03-01T12:00:00", None]),
        (np.datetime64("NaT"), None),
        (np.datetime64("2026-03-01T12:00:00", "ns"), "2026-03-01T12:00:00"),
        (np.str_("x"), "x"),
        (np.bytes_(b"x"), "x"),
        (np.int64(7), 7),
        (np.True_, True),
        (np.float64("nan"), None),
        ({np.str_("k"): 1}, {"k": 1}),
        (2**70, float(2**70)),
        (type("Stamp", (dt.datetime,), {})(2026, 3, 1), "2026-03-01T00:00:00"),
        (type("NaT", (dt.datetime,), {"__eq__": lambda *_: False})(2026, 3, 1), None),  # as pandas has it
        (dt.time(1, 2, tzinfo=dt.UTC), "01:02:00+00:00"),
        (type("Share", (float,), {})(0.5), 0.5),
        ({Word.ID: Word.ID}, {"id": "id"}),
    ],
    ids=repr,
)
def test_arrays_scalars_and_times_count_as_their_values(value: object, expected: object) -> None:
    """Alone, and beside a value for which the fast way is left."""
    assert expected == orjson.loads(json_bytes({"x": value}))["x"]
    assert [expected] == orjson.loads(json_bytes({"x": [value], "large": 2**70}))["x"]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"id": "a", "price": Decimal("1.5")}, "/price has the type Decimal, which JSON does not have"),
        ({"a": [0, {"b": {CANARY}}]}, "/a/1/b has the type set, which JSON does not have"),
        ({"title": f"{CANARY} \ud83d"}, "/title has a lone surrogate, which is not text"),
        ({"raw": CANARY.encode() + b"\xff"}, "/raw has bytes that are not UTF-8"),
        ({"a": {1: CANARY}}, "/a has a name that is not text"),
        ({7: CANARY}, "the article has a name that is not text"),
        ({"n": 10**400}, "/n is a number beyond a double"),
        ({"t": np.timedelta64(1, "D")}, "/t has the type timedelta64, which JSON does not have"),
        ("\ud83d", "the article has a lone surrogate, which is not text"),
    ],
    ids=["decimal", "set", "surrogate", "bytes", "name", "own name", "number", "duration", "text"],
)
def test_a_refusal_names_the_field_and_one_cause(document: Any, reason: str) -> None:  # noqa: ANN401  any article
    """Never what is there."""
    with pytest.raises(InvalidArticle) as caught:
        json_bytes(document)
    assert reason == str(caught.value)
    assert caught.value.__context__ is None, "what is chained may hold the article"


def test_a_mapping_that_contains_itself_is_refused() -> None:
    """At the deepest level that may be, whatever else is in it."""
    document: dict[str, Any] = {"id": "a", "body": "Oslo"}
    document["self"] = [document, document]
    with pytest.raises(InvalidArticle, match="more than 254 levels"):
        json_bytes(document)
