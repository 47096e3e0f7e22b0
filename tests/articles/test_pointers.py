"""JSON Pointers: what RFC 6901 says, found in any document, and malformed ones refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import any_text

from enricher.worker.articles.pointers import MAX_POINTER_CHARS, MISSING, body_finder, finder, parse_pointer

texts = any_text(max_size=6) | st.sampled_from(["0", "1", "01", "-", "~1", "/"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)

RFC_EXAMPLES = {
    "foo": ["bar", "baz"],
    "": 0,
    "a/b": 1,
    "c%d": 2,
    "e^f": 3,
    "g|h": 4,
    "i\\j": 5,
    'k"l': 6,
    " ": 7,
    "m~n": 8,
}
"""The document of RFC 6901, section 5."""


def found(document: dict[str, Any], pointer: str) -> object:
    """What a pointer finds."""
    return finder(parse_pointer(pointer))(document)


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/e^f", 3),
        ("/g|h", 4),
        ("/i\\j", 5),
        ('/k"l', 6),
        ("/ ", 7),
        ("/m~0n", 8),
    ],
)
def test_pointers_of_the_standard_find_their_values(pointer: str, value: object) -> None:
    """The examples of RFC 6901, but for the whole document, which is no field."""
    assert value == found(RFC_EXAMPLES, pointer)


@pytest.mark.parametrize(
    "pointer", ["", "id", "#/id", "a/b", "/a~", "/a~2b", "/~", "/\ud83d", "/" + "x" * MAX_POINTER_CHARS]
)
def test_malformed_pointers_are_refused(pointer: str) -> None:
    """Also the empty one, which is the whole document."""
    with pytest.raises(ValueError, match="JSON Pointer"):
        parse_pointer(pointer)


@pytest.mark.parametrize(
    "pointer",
    ["/foo/2", "/foo/-", "/foo/00", "/foo/-1", "/foo/+1", "/foo/٠", "/foo/0/0", "/foo/bar", "/a", "/foo/" + "9" * 400],
)
def test_what_is_not_there_is_missing(pointer: str) -> None:
    """An index beyond the list, in another notation, or into text finds nothing, and raises nothing."""
    assert MISSING is found(RFC_EXAMPLES, pointer)


def _paths(value: object, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], object]]:
    """Every value inside, with its names."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [each for name, part in inner for each in [((*path, str(name)), part), *_paths(part, (*path, str(name)))]]


@given(st.dictionaries(texts, json_values, max_size=4))
def test_every_value_has_a_pointer_that_finds_it(document: dict[str, Any]) -> None:
    """Whatever its names contain."""
    for path, value in _paths(document):
        pointer = "".join(f"/{name.replace('~', '~0').replace('/', '~1')}" for name in path)
        if len(pointer) <= MAX_POINTER_CHARS:
            assert path == parse_pointer(pointer)
            assert value is found(document, pointer)


@given(document=st.dictionaries(texts, json_values, max_size=4), names=st.lists(texts, min_size=1, max_size=4))
def test_any_pointer_finds_something_or_nothing_in_any_document(document: dict[str, Any], names: list[str]) -> None:
    """Against the definition, one name at a time."""
    expected: object = document
    for name in names:
        if isinstance(expected, dict) and name in expected:
            expected = expected[name]
        elif isinstance(expected, list) and name in {str(index) for index in range(len(expected))}:
            expected = expected[int(name)]
        else:
            expected = MISSING
    assert expected is finder(tuple(names))(document)


@given(
    document=st.dictionaries(texts, json_values, max_size=4),
    before=st.lists(texts, min_size=1, max_size=2),
    after=st.lists(texts, max_size=3),
)
def test_a_star_finds_what_each_item_has_in_any_document(
    document: dict[str, Any], before: list[str], after: list[str]
) -> None:
    """Against the definition, one item at a time, in the order of the list; null and what is missing are left out."""
    items = finder(tuple(before))(document)
    expected: object = MISSING
    if isinstance(items, list):
        # A pointer of one name more finds the same in an object around the item, whatever the item is.
        each = [finder(("item", *after))({"item": item}) for item in items]
        expected = [value for value in each if value is not MISSING and value is not None]
    found_there = body_finder((*before, "*", *after))(document)
    assert expected is found_there if expected is MISSING else expected == found_there


@given(any_text(max_size=12))
def test_any_text_is_a_pointer_or_refused_as_one(text: str) -> None:
    """Nothing but ValueError leaves it."""
    try:
        names = parse_pointer(text)
    except ValueError:
        return
    assert text.count("/") == len(names)
