"""Counts which findings of two models are lost, gained, relabelled and moved, with intervals, and judges. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from enricher.workshop.gate.scoring import EntitySpan, PerText, Share, share

ChangeKind = Literal["lost", "gained", "relabelled", "moved"]
KINDS: tuple[ChangeKind, ...] = ("lost", "gained", "relabelled", "moved")
COLUMNS = ("", "A", "B", *KINDS)
_EXAMPLES = 5
Answer = Mapping[EntitySpan, str]
"""The findings in one article with their texts, which are parts of the article. A class is a finding without a place."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of a model: one for each article, None where it has none. `labels`: all labels that it can give."""

    name: str
    digest: str
    precision: str
    labels: tuple[str, ...]
    answers: Sequence[Answer | None]


@dataclass(frozen=True, slots=True)
class Row:
    """The changes of one label, or of all: counts, and shares of A's findings, or for `gained` of B's.

    A share of no findings is None. `examples`: texts of articles, if they were asked for.
    """

    label: str
    of_a: int
    of_b: int
    counts: Mapping[ChangeKind, int]
    shares: Mapping[ChangeKind, Share | None]
    examples: Mapping[ChangeKind, tuple[str, ...]]

    @property
    def cells(self) -> list[str]:
        """A cell for each of `COLUMNS`."""
        shares = [
            f"{self.counts[kind]:,}: {share:.1f}"
            if share is not None and self.counts[kind]
            else f"{self.counts[kind]:,}"
            for kind, share in self.shares.items()
        ]
        return [self.label, f"{self.of_a:,}", f"{self.of_b:,}", *shares]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The changes from A to B. `only_a`: the number of articles for which only A has an answer.

    `rows`: a row of all labels, then a row of each label.
    """

    articles: int
    changed_articles: int
    only_a: int
    rows: tuple[Row, ...]
    remarks: tuple[str, ...]


@dataclass(slots=True)
class _Changes:
    """The findings and changes of all articles, each by article, label and column: A's, B's, then `KINDS`."""

    places: list[tuple[int, str, int]]
    examples: defaultdict[tuple[str, ChangeKind], dict[str, None]]

    def note(self, article: int, one: Answer, two: Answer) -> None:
        """Count one article."""
        for column, findings in enumerate((one, two)):
            self.places += [(article, span.label, column) for span in findings]
        for change in changes_of(one, two):
            self.places.append((article, change.label, 2 + KINDS.index(change.kind)))
            texts = self.examples[change.label, change.kind]
            if len(texts) < _EXAMPLES:
                texts[_example(change, one, two)] = None

    def counts(self, articles: int, label: str | None) -> PerText:
        """`int64 [articles, 2 + kinds]`, of one label or of all."""
        counts = np.zeros((articles, 2 + len(KINDS)), np.int64)
        chosen = [(article, column) for article, name, column in self.places if label in {None, name}]
        if chosen:
            np.add.at(counts, tuple(np.array(chosen).T), 1)
        return counts


def compare(a: Answers, b: Answers, *, examples: bool = False) -> Comparison:
    """All figures. Labels are paired by name, ignoring case."""
    renamed = _other_names(a.labels, b.labels)
    both = list(zip(a.answers, b.answers, strict=True))
    pairs = [(one, _rename(two, renamed)) for one, two in both if one is not None and two is not None]
    changes = _Changes([], defaultdict(dict))
    for article, (one, two) in enumerate(pairs):
        changes.note(article, one, two)
    every = changes.counts(len(pairs), None)
    rows = [_row("all", every, {})]
    for label in sorted({name for _, name, _ in changes.places}):
        shown = {kind: tuple(changes.examples[label, kind]) for kind in KINDS} if examples else {}
        rows.append(_row(label, changes.counts(len(pairs), label), shown))
    only_a, only_b, neither = (
        sum((one is not None, two is not None) == who for one, two in both)
        for who in ((True, False), (False, True), (False, False))
    )
    return Comparison(
        articles=len(pairs),
        changed_articles=int(every[:, 2:].any(axis=1).sum()),
        only_a=only_a,
        rows=tuple(rows),
        remarks=(*_remarks_on_labels(a, b, renamed), *_remarks_on_answers(only_a, only_b, neither)),
    )


def judge(comparison: Comparison, max_lost: float | None, max_relabelled: float | None) -> list[str] | None:
    """The reasons to fail: a larger share than allowed changed, or nothing can be judged. None without a limit."""
    if max_lost is None and max_relabelled is None:
        return None
    limits: tuple[tuple[ChangeKind, float | None], ...] = (("lost", max_lost), ("relabelled", max_relabelled))
    reasons: list[str] = []
    for kind, limit in limits:
        found = comparison.rows[0].shares[kind]
        if limit is not None and found is None:
            reasons.append(f"A finds nothing in these articles, so what is {kind} cannot be judged")
        elif limit is not None and found is not None and found.value > limit:
            reasons.append(f"{found} of A's findings are {kind}, and {100 * limit:g} % may be")
    if comparison.only_a:
        reasons.append(f"B has no answer for {comparison.only_a:,} articles for which A has one")
    return reasons


def _row(label: str, counts: PerText, examples: Mapping[ChangeKind, tuple[str, ...]]) -> Row:
    sums = counts.sum(axis=0).tolist()
    shares = {
        kind: share(counts[:, 2 + column], counts[:, 1 if kind == "gained" else 0]) for column, kind in enumerate(KINDS)
    }
    return Row(label, sums[0], sums[1], dict(zip(KINDS, sums[2:], strict=True)), shares, examples)


def _remarks_on_labels(a: Answers, b: Answers, renamed: Mapping[str, str]) -> list[str]:
    remarks, known_b = [], {renamed.get(label, label) for label in b.labels}
    if renamed:
        names = ", ".join(f"{other} for {label}" for label, other in renamed.items())
        remarks.append(f"Labels of B were read under A's names: {names}.")
    if only_a := sorted({*a.labels} - known_b):
        remarks.append(f"Only A has these labels, so B cannot give them: {', '.join(only_a)}.")
    if only_b := sorted(known_b - {*a.labels}):
        remarks.append(f"Only B has these labels: {', '.join(only_b)}.")
    return remarks


def _remarks_on_answers(only_a: int, only_b: int, neither: int) -> list[str]:
    counts = ((only_a, "Only A has"), (only_b, "Only B has"), (neither, "Neither has"))
    return [
        f"{who} an answer for {count:,} articles, which are not compared; `enricher enrich` says why, for each."
        for count, who in counts
        if count
    ]


def _other_names(labels_a: Collection[str], labels_b: Collection[str]) -> dict[str, str]:
    """A's name for each label of B that A writes in another case."""
    by_case = {label.casefold(): label for label in labels_a}
    return {
        label: by_case[label.casefold()] for label in labels_b if label not in labels_a and label.casefold() in by_case
    }


def _rename(answer: Answer, renamed: Mapping[str, str]) -> Answer:
    return {
        EntitySpan(span.field, span.start, span.end, renamed.get(span.label, span.label)): text
        for span, text in answer.items()
    }


def _example(change: Change, one: Answer, two: Answer) -> str:
    """The texts of both findings with their labels, or of the only one."""
    found = [(change.a, one), (change.b, two)]
    return " -> ".join(f"{findings[span]} ({span.label})" for span, findings in found if span)


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
