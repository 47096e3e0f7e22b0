"""What the topic wants against what the index holds: each difference by its name, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enricher.indexing.index_verify import VersionComparison, Wanted


@pytest.fixture
def comparison() -> Iterator[VersionComparison]:
    """Three documents, of which one is deleted."""
    comparison = VersionComparison()
    comparison.want(
        [record("a", 5), record("a", 9), record("b", 3), record("gone", 2), record("gone", 4, deleted=True)]
    )
    yield comparison
    comparison.close()


def record(name: str, version: int, *, deleted: bool = False) -> Wanted:
    """What a record wants."""
    return Wanted(name, version, deleted)


def found(comparison: VersionComparison) -> list[tuple[str, str]]:
    """Kind and document of each difference."""
    return [(kind, name) for kind, name, _, _ in comparison.differences()]


RIGHT = {"a": 9, "b": 3}


@pytest.mark.parametrize(
    ("held", "kind", "name"),
    [
        ({"a": 9}, "missing", "b"),
        ({**RIGHT, "a": 5}, "older", "a"),
        ({**RIGHT, "a": 10}, "newer", "a"),
        ({**RIGHT, "gone": 2}, "came back", "gone"),
        ({**RIGHT, "nobody": 1}, "surplus", "nobody"),
    ],
)
def test_each_difference_has_a_name(comparison: VersionComparison, held: dict[str, int], kind: str, name: str) -> None:
    """And is the only one."""
    comparison.hold(held.items())
    assert [(kind, name)] == found(comparison)


@pytest.mark.parametrize(
    ("held", "later"),
    [
        ({**RIGHT, "a": 12}, record("a", 12)),
        ({"a": 9}, record("b", 7, deleted=True)),
        ({**RIGHT, "gone": 6}, record("gone", 6)),
        ({**RIGHT, "new": 20}, record("new", 20)),
    ],
)
def test_what_has_a_later_record_is_not_judged(
    comparison: VersionComparison, held: dict[str, int], later: Wanted
) -> None:
    """A newer article, a newer delete, an article after its delete, a new article; without its record each is wrong."""
    comparison.hold(held.items())
    assert 1 == len(found(comparison))
    comparison.leave_out([later])
    assert [] == found(comparison)


def test_what_the_index_refused_is_not_missing(comparison: VersionComparison) -> None:
    """Only the version that became a dead letter: another one is missing. What the index holds all the same is no letter."""
    comparison.hold([("a", 5), ("b", 3)])
    assert 0 == comparison.refuse([record("a", 5), record("b", 3)])
    assert [("older", "a")] == found(comparison)
    assert 1 == comparison.refuse([record("a", 9)])
    assert [] == found(comparison)


names, versions = st.sampled_from("abcd"), st.integers(0, 4)


@given(
    st.lists(st.tuples(names, versions, st.booleans()), max_size=12),
    st.dictionaries(names, versions, max_size=4),
)
def test_it_agrees_with_the_rule_in_plain_words(records: list[tuple[str, int, bool]], held: dict[str, int]) -> None:
    """The last record of the highest version of each id decides, and the index is right if it holds exactly those."""
    wanted: dict[str, tuple[int, bool]] = {}
    for name, version, deleted in records:
        if version >= wanted.get(name, (-1, False))[0]:
            wanted[name] = version, deleted
    right = {name: version for name, (version, deleted) in wanted.items() if not deleted}
    comparison = VersionComparison()
    comparison.want(Wanted(name, version, deleted) for name, version, deleted in records)
    assert (len(right), len(held)) == (comparison.documents, comparison.hold(held.items()))
    assert {name for _, name in found(comparison)} == {
        name for name in {*held, *right} if held.get(name) != right.get(name)
    }
    comparison.close()
