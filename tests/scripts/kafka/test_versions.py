"""Names of versions, and what differs between them."""

from __future__ import annotations

import pytest

from tools.kafka import ClusterError
from tools.kafka.versions import DEFAULT, OLDEST, VERSIONS, find, logs_with_log4j_1


def test_version_is_found_by_number_line_and_word() -> None:
    """`3.9` is the newest patch of its line, `oldest` the first of the list."""
    assert [DEFAULT, OLDEST, DEFAULT] == [find(DEFAULT), find("oldest"), find("default")]
    assert find("3.9").startswith("3.9.")


def test_unknown_version_is_refused_with_the_list() -> None:
    """The message lists the known versions."""
    with pytest.raises(ClusterError, match=f"choose one of {VERSIONS[0]}, {VERSIONS[1]}"):
        find("3.99")


def test_list_is_in_order_with_one_version_of_each_line() -> None:
    """The list is sorted with one version per line, so the first is the oldest."""
    numbers = [tuple(map(int, version.split("."))) for version in VERSIONS]
    assert sorted(numbers) == numbers
    assert len({number[:2] for number in numbers}) == len(numbers)


def test_log4j_1_ends_with_its_line() -> None:
    """Its successor comes with 4.0."""
    assert [logs_with_log4j_1(version) for version in ("3.9.2", "3.10.0", "4.0.2")] == [True, True, False]
