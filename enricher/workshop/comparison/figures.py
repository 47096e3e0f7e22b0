"""Counts how many findings of two models are lost, gained, relabelled and moved, with intervals, and judges.

The figures are also written as cells of tables, for the terminal.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from enricher.workshop.comparison.matching import KINDS, Change, ChangeKind, changes_of
from enricher.workshop.gate.measure import length_buckets
from enricher.workshop.gate.scoring import EntitySpan
from enricher.workshop.gate.shares import PerText, Share, share

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from enricher.workshop.comparison.model_answers import Answer, Answers, Cost

_MOST_FREQUENT = 20
_MOST_LANGUAGES = 20
_EXAMPLES = 5
COLUMNS = ("", "articles", "A", "B", *KINDS)
CHANGE_COLUMNS = ("change", "A", "B", "times", "examples")
COST_COLUMNS = ("model", "precision", "articles/s", "tokens/s", "processor s per 1,000 articles")


@dataclass(frozen=True, slots=True)
class Row:
    """The changes of some findings: counts, and shares of A's findings, or for `gained` of B's; None of no findings."""

    name: str
    articles: int
    of_a: int
    of_b: int
    counts: Mapping[ChangeKind, int]
    shares: Mapping[ChangeKind, Share | None]


@dataclass(frozen=True, slots=True)
class Frequent:
    """A kind of change between two labels. `examples`: texts of articles, if they were asked for."""

    kind: ChangeKind
    label_a: str | None
    label_b: str | None
    count: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Model:
    """A model, and what its run cost; None if it was not run."""

    name: str
    digest: str
    precision: str
    cost: Cost | None

    @classmethod
    def of(cls, answers: Answers) -> Model:
        """The model that gave these answers."""
        return cls(answers.name, answers.digest, answers.precision, answers.cost)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The changes from A to B. `only_a` and `only_b`: the number of articles for which only one has an answer."""

    model_a: Model
    model_b: Model
    articles: int
    changed_articles: int
    only_a: int
    only_b: int
    unanswered: int
    overall: Row
    by_label: tuple[Row, ...]
    by_length: tuple[Row, ...]
    by_language: tuple[Row, ...]
    frequent: tuple[Frequent, ...]
    labels_only_a: tuple[str, ...]
    labels_only_b: tuple[str, ...]
    renamed: Mapping[str, str]
    """A's names for labels of B that have another name."""

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, the overall one first."""
        return (self.overall, *self.by_label, *self.by_length, *self.by_language)

    @property
    def remarks(self) -> list[str]:
        """Sentences about facts that a reader might overlook."""
        remarks = []
        if self.renamed:
            names = ", ".join(f"{other} for {label}" for label, other in self.renamed.items())
            remarks.append(f"Labels of B were read under A's names: {names}.")
        if self.labels_only_a:
            remarks.append(f"Only A has these labels, so B cannot give them: {', '.join(self.labels_only_a)}.")
        if self.labels_only_b:
            remarks.append(f"Only B has these labels: {', '.join(self.labels_only_b)}.")
        for count, who in ((self.only_a, "Only A has"), (self.only_b, "Only B has"), (self.unanswered, "Neither has")):
            if count:
                remarks.append(f"{who} an answer for {count:,} articles, which are not compared.")
        return remarks


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reasons` say why it failed."""

    passed: bool
    reasons: tuple[str, ...]


Kind = tuple[ChangeKind, str | None, str | None]


@dataclass(slots=True)
class _Counters:
    """The findings and changes of all articles, each by article, label and column: A's, B's, then `KINDS`."""

    examples: int
    places: list[tuple[int, str, int]] = field(default_factory=list)
    kinds: Counter[Kind] = field(default_factory=Counter)
    texts: defaultdict[Kind, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))

    def note(self, article: int, one: Answer, two: Answer) -> None:
        """Count one article."""
        for column, findings in enumerate((one.findings, two.findings)):
            self.places += [(article, span.label, column) for span in findings]
        for change in changes_of(one.findings, two.findings):
            self.places.append((article, change.label, 2 + KINDS.index(change.kind)))
            kind = (change.kind, change.a.label if change.a else None, change.b.label if change.b else None)
            self.kinds[kind] += 1
            if len(self.texts[kind]) < self.examples:
                self.texts[kind][_example(change, one, two)] = None

    def counts(self, articles: int, label: str | None = None) -> PerText:
        """`int64 [articles, 2 + kinds]`, of all labels or of one."""
        counts = np.zeros((articles, 2 + len(KINDS)), np.int64)
        chosen = [(article, column) for article, name, column in self.places if label in {None, name}]
        if chosen:
            np.add.at(counts, tuple(np.array(chosen).T), 1)
        return counts

    def frequent(self) -> tuple[Frequent, ...]:
        """The most frequent changes."""
        most = self.kinds.most_common(_MOST_FREQUENT)
        return tuple(Frequent(*kind, count, tuple(self.texts[kind])) for kind, count in most)


def compare(a: Answers, b: Answers, named: Mapping[str, str], *, examples: bool = False) -> Comparison:
    """All figures. `named`: A's names for labels of B. Other labels are paired by name, ignoring case."""
    renamed = _other_names(a.labels, b.labels, named)
    known_b = {renamed.get(label, label) for label in b.labels}
    both = list(zip(a.answers, b.answers, strict=True))
    pairs = [(one, _rename(two, renamed)) for one, two in both if one and two]
    counters = _Counters(_EXAMPLES if examples else 0)
    for article, (one, two) in enumerate(pairs):
        counters.note(article, one, two)
    every = counters.counts(len(pairs))
    lengths = np.array([two.tokens for _, two in pairs], np.int32)
    languages = np.array([two.language for _, two in pairs], dtype=object)
    return Comparison(
        model_a=Model.of(a),
        model_b=Model.of(b),
        articles=len(pairs),
        changed_articles=int(every[:, 2:].any(axis=1).sum()),
        only_a=sum(one is not None and two is None for one, two in both),
        only_b=sum(one is None and two is not None for one, two in both),
        unanswered=sum(one is None and two is None for one, two in both),
        overall=_row("all", every),
        by_label=tuple(
            _row(label, counters.counts(len(pairs), label))
            for label in sorted({name for _, name, _ in counters.places})
        ),
        by_length=tuple(_row(name, every[members]) for name, members in length_buckets(lengths)),
        by_language=tuple(
            _row(language or "not named", every[languages == language])
            for language, _ in Counter(languages.tolist()).most_common(_MOST_LANGUAGES)
        ),
        frequent=counters.frequent(),
        labels_only_a=tuple(sorted({*a.labels} - known_b)),
        labels_only_b=tuple(sorted(known_b - {*a.labels})),
        renamed=renamed,
    )


def judge(comparison: Comparison, max_lost: float | None, max_relabelled: float | None) -> Verdict | None:
    """Fail if a larger share than allowed changed, or if nothing can be judged. None without a limit."""
    if max_lost is None and max_relabelled is None:
        return None
    limits: tuple[tuple[ChangeKind, float | None], ...] = (("lost", max_lost), ("relabelled", max_relabelled))
    reasons: list[str] = []
    for kind, limit in limits:
        found = comparison.overall.shares[kind]
        if limit is not None and found is None:
            reasons.append(f"A finds nothing in these articles, so what is {kind} cannot be judged")
        elif limit is not None and found is not None and found.value > limit:
            reasons.append(f"{found} of A's findings are {kind}, and {100 * limit:g} % may be")
    if comparison.only_a:
        reasons.append(f"B has no answer for {comparison.only_a:,} articles for which A has one")
    return Verdict(not reasons, tuple(reasons))


def _row(name: str, counts: PerText) -> Row:
    sums = counts.sum(axis=0).tolist()
    whole = {kind: counts[:, 1 if kind == "gained" else 0] for kind in KINDS}
    shares = {kind: share(counts[:, 2 + column], whole[kind]) for column, kind in enumerate(KINDS)}
    return Row(name, len(counts), sums[0], sums[1], dict(zip(KINDS, sums[2:], strict=True)), shares)


def _other_names(labels_a: Collection[str], labels_b: Collection[str], named: Mapping[str, str]) -> dict[str, str]:
    """A's name for each label of B to which A gives another name."""
    by_case = {label.casefold(): label for label in labels_a}
    pairs = {label: named.get(label) or by_case.get(label.casefold(), label) for label in labels_b}
    return {label: other for label, other in pairs.items() if label != other and label not in labels_a}


def _rename(answer: Answer, renamed: Mapping[str, str]) -> Answer:
    if not renamed:
        return answer
    findings = {
        EntitySpan(span.field, span.start, span.end, renamed.get(span.label, span.label)): text
        for span, text in answer.findings.items()
    }
    return type(answer)(findings, answer.tokens, answer.language)


def _example(change: Change, one: Answer, two: Answer) -> str:
    """The texts of both findings, or of the only one."""
    texts = [one.findings[change.a]] if change.a else []
    texts += [two.findings[change.b]] if change.b else []
    return " -> ".join(dict.fromkeys(texts))


def row_cells(row: Row) -> list[str]:
    """A cell for each of `COLUMNS`."""
    shares = [
        f"{row.counts[kind]:,}: {share:.1f}" if share is not None and row.counts[kind] else f"{row.counts[kind]:,}"
        for kind, share in row.shares.items()
    ]
    return [row.name, f"{row.articles:,}", f"{row.of_a:,}", f"{row.of_b:,}", *shares]


def change_cells(change: Frequent) -> list[str]:
    """A cell for each of `CHANGE_COLUMNS`."""
    labels = [change.label_a or "-", change.label_b or "-"]
    return [change.kind, *labels, f"{change.count:,}", "; ".join(change.examples)]


def cost_cells(model: Model) -> list[str]:
    """A cell for each of `COST_COLUMNS`."""
    cost = model.cost
    if cost is None:
        return [model.name, model.precision, "-", "-", "-"]
    rates = [f"{cost.articles_per_s:,.1f}", f"{cost.tokens / cost.seconds:,.0f}", f"{cost.processor_s_per_1000:,.1f}"]
    return [model.name, model.precision, *rates]
