"""Finds the changes within one article: which findings of two models are the same, and how the others differ. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from enricher.workshop.gate.scoring import EntitySpan

ChangeKind = Literal["lost", "gained", "relabelled", "moved"]
KINDS: tuple[ChangeKind, ...] = ("lost", "gained", "relabelled", "moved")


@dataclass(frozen=True, slots=True)
class Change:
    """A finding of A that B does not give, one of B that A does not give, or both, where one replaces the other.

    `moved`: the same label on another, overlapping span. `relabelled`: another label on the same or an overlapping span.
    """

    kind: ChangeKind
    a: EntitySpan | None
    b: EntitySpan | None

    @property
    def label(self) -> str:
        """The label that the change is counted under: A's, or for a gained finding B's."""
        found = self.a or self.b
        assert found, "a change has a finding of A or of B"
        return found.label


def changes_of(a: Collection[EntitySpan], b: Collection[EntitySpan]) -> list[Change]:
    """All changes from A to B. A finding is in one change at most. The spans of a model do not overlap each other.

    Apart from sorting, the time is proportional to the number of findings.
    """
    left, right = sorted(set(a) - set(b), key=_place), sorted(set(b) - set(a), key=_place)
    changes: list[Change] = []
    for pairs in (_same_span, partial(_sweep, same_label=True), partial(_sweep, same_label=False)):
        paired = list(pairs(left, right))
        changes += [Change("moved" if one.label == other.label else "relabelled", one, other) for one, other in paired]
        gone = {each for pair in paired for each in pair}
        left, right = ([each for each in spans if each not in gone] for spans in (left, right))
    changes += [Change("lost", each, None) for each in left]
    return changes + [Change("gained", None, each) for each in right]


def _place(span: EntitySpan) -> tuple[str, int, int, str]:
    return span.field, span.start, span.end, span.label


def _same_span(left: Sequence[EntitySpan], right: Sequence[EntitySpan]) -> Iterator[tuple[EntitySpan, EntitySpan]]:
    by_span: defaultdict[tuple[str, int, int], list[EntitySpan]] = defaultdict(list)
    for each in reversed(right):
        by_span[each.field, each.start, each.end].append(each)
    for each in left:
        if others := by_span[each.field, each.start, each.end]:
            yield each, others.pop()


def _sweep(
    left: Sequence[EntitySpan], right: Sequence[EntitySpan], *, same_label: bool
) -> Iterator[tuple[EntitySpan, EntitySpan]]:
    """Pairs that overlap, in the order of the article. `same_label`: only pairs with the same label."""
    here = there = 0
    while here < len(left) and there < len(right):
        one, other = left[here], right[there]
        overlap = one.field == other.field and one.start < other.end and other.start < one.end
        if overlap and (one.label == other.label or not same_label):
            yield one, other
            here, there = here + 1, there + 1
        elif (one.field, one.end) <= (other.field, other.end):
            here += 1
        else:
            there += 1
