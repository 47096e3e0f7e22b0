"""What a seed decides, independent of timing: kinds, parameters, inputs; and the report of a run that failed."""

from __future__ import annotations

from itertools import islice

import pytest

from tools.chaos.__main__ import Outcome, Plan, Run
from tools.chaos.check import Findings
from tools.chaos.faults import KINDS, Fault, plan
from tools.chaos.reference import expected
from tools.chaos.scene import java_hash
from tools.chaos.workload import Articles


def first(seed: int, count: int) -> list[tuple[type[Fault], float]]:
    """The first kinds of a plan, each with its first random number."""
    return [(kind, chosen.random()) for kind, chosen in islice(plan(seed), count)]


def test_seed_repeats_kinds_and_parameters() -> None:
    """The same seed gives the same faults; another seed gives others."""
    assert first(1, 100) == first(1, 100)
    assert first(1, 100) != first(2, 100)


def test_every_kind_comes_once_in_each_round() -> None:
    """Each round contains every kind once."""
    kinds = [kind for kind, _ in first(3, 2 * len(KINDS))]
    assert set(KINDS) == set(kinds[: len(KINDS)]) == set(kinds[len(KINDS) :])


def test_kinds_have_names_of_their_own_and_there_are_enough() -> None:
    """The report tells kinds apart by name."""
    assert len({kind.name for kind in KINDS}) == len(KINDS) >= 19


@pytest.mark.parametrize(
    ("text", "value"), [("", 0), ("abc", 96_354), ("Hello World", 862_545_276), ("polygenelubricants", 0), ("é", 233)]
)
def test_partition_of_a_group_is_found_as_java_does(text: str, value: int) -> None:
    """Java's `String.hashCode`, made positive; `Hello World` hashes to -862545276 there."""
    assert value == java_hash(text)


def test_articles_by_number_are_the_same_each_time_with_keys_of_their_own() -> None:
    """An input depends on its number alone, and the mix has all kinds."""
    articles, others = Articles("run"), Articles("run")
    inputs = [articles.input(number) for number in range(200)]
    assert inputs == [others.input(number) for number in reversed(range(200))][::-1]
    assert len({each.key for each in inputs}) == 200
    assert {"record", "tombstone", "decode", "inference"} == {expected(each.value).kind for each in inputs}


def run_of(findings: Findings, outcome: Outcome) -> Run:
    """A short run that caught up in the end."""
    return Run(Plan(1, 100.0, 1.0, KINDS, "4.3.1"), 60.0, [outcome], findings, 0, caught_up=True)


def outcome_of(*, wrong: tuple[str, ...] = (), slow: tuple[str, ...] = ()) -> Outcome:
    """A fault after which the group recovered in a second."""
    return Outcome("some fault", "worker-0", 1.0, 2.0, 1.0, {"worker-0": [5]}, wrong, slow)


def test_run_with_losses_is_reported_with_their_counts_and_places() -> None:
    """The report shows how many inputs are lost, and which."""
    findings = Findings(inputs=9, outputs=7)
    for place in (("id", 0, 3), ("id", 0, 4)):
        findings.note("lost", place)
    run = run_of(findings, outcome_of())
    assert not run.good
    assert "2 lost, 0 doubled" in run.report
    assert "lost: 2, such as ('id', 0, 3), ('id', 0, 4)" in run.report


@pytest.mark.parametrize("found", [{"wrong": ("worker-0 ended with 4",)}, {"slow": ("over the limit of 20 s",)}])
def test_fault_that_found_something_makes_a_run_bad(found: dict[str, tuple[str]]) -> None:
    """A run with an unexplained exit or a late recovery is bad though no record is, and the report names the fault."""
    assert run_of(Findings(), outcome_of()).good
    run = run_of(Findings(), outcome_of(**found))
    assert run.exactly_once
    assert not run.good
    [(text,)] = found.values()
    [line] = [line for line in run.report.splitlines() if line.startswith("some fault: worker-0; 1 s to 2 s")]
    assert line.endswith(text)
