"""What the topic wants against what the index holds: each difference by its name, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enricher.indexing.version_comparison import VersionComparison, Wanted


@pytest.fixture
def comparison() -> Iterator[VersionComparison]:
    """Three documents, of which one is deleted."""
    comparison = VersionComparison()
    comparison.want(
        [record("a", 5), record("a", 9), record("b", 3), record("gone", 2), record("gone", 4, deleted=True)]
    )
    yield comparison
    comparison.close()


def record(name: str, version: int, *, deleted: bool = False, partition: int = 0) -> Wanted:
    """What a record wants."""
    return Wanted(name, version, deleted, partition)


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
    assert {kind: 1} == comparison.counts()
    assert [name] == [example[0] for example in comparison.examples(kind, 10)]  # type: ignore[arg-type]


def test_the_right_index_differs_in_nothing(comparison: VersionComparison) -> None:
    """Two documents, one deleted."""
    comparison.hold(RIGHT.items())
    assert {} == comparison.counts()
    assert (2, 1, 2) == (comparison.wanted, comparison.deleted, comparison.held)


def test_a_document_in_two_indices_of_an_alias_is_named(comparison: VersionComparison) -> None:
    """A search finds it twice."""
    comparison.hold([*RIGHT.items(), ("b", 3)])
    assert {"twice": 1} == comparison.counts()


@pytest.mark.parametrize(
    ("held", "later"),
    [
        ({**RIGHT, "a": 12}, record("a", 12)),
        ({"a": 9}, record("b", 7, deleted=True)),
        ({**RIGHT, "gone": 6}, record("gone", 6)),
        ({**RIGHT, "new": 20}, record("new", 20)),
    ],
)
def test_what_came_meanwhile_may_be_in_the_index(
    comparison: VersionComparison, held: dict[str, int], later: Wanted
) -> None:
    """A newer article, a newer delete, an article after its delete, a new article; without its record each is wrong."""
    comparison.hold(held.items())
    assert 1 == sum(comparison.counts().values())
    comparison.want_later([later])
    assert {} == comparison.counts()


def test_what_the_index_refused_is_not_missing(comparison: VersionComparison) -> None:
    """Only the version that became a dead letter: another one is missing."""
    comparison.hold([("a", 5), ("b", 3)])
    comparison.refuse([record("a", 5)])
    assert {"older": 1} == comparison.counts()
    comparison.refuse([record("a", 9)])
    assert {"refused": 1} == comparison.counts()


def test_documents_older_than_the_topic_are_counted_apart(comparison: VersionComparison) -> None:
    """Their records may have been removed by retention."""
    comparison.hold([*RIGHT.items(), ("old", 1), ("young", 8)])
    comparison.forgive_below(5)
    assert {"older than the topic": 1, "surplus": 1} == comparison.counts()


def test_documents_with_records_in_several_partitions_are_counted(comparison: VersionComparison) -> None:
    """No version orders them."""
    assert 0 == comparison.in_several_partitions
    comparison.want([record("b", 1, partition=3)])
    assert 1 == comparison.in_several_partitions


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
    comparison.want(Wanted(name, version, deleted, 0) for name, version, deleted in records)
    comparison.hold(held.items())
    assert sum(comparison.counts().values()) == sum(held.get(name) != right.get(name) for name in {*held, *right})
    comparison.close()
