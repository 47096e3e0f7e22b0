"""The passes of one article. A worker with several passes makes a branch of its ticket for each pass that the article needs.

A branch goes through tokenizer, windows and model like a ticket. What is read, released and committed is its trunk: it is
finished after the last of its branches, or with the dead letter of any. A worker with one pass makes no branches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from enricher.worker.heads import EntityHead, Head, is_for, kind_of_field
from enricher.worker.records import (
    Article,
    Coverage,
    DeadLetter,
    EnrichedRecord,
    Keep,
    Outcome,
    TaskCard,
    TaskReport,
    Ticket,
    principal,
)


class Splitter:
    """Makes the branches of articles. `heads`: of each pass; `cards`: of all tasks, in the order of the settings."""

    def __init__(self, heads: Sequence[Sequence[Head]], cards: Sequence[TaskCard] = ()) -> None:
        assert heads, "a worker has a pass"
        self._heads = heads
        self.cards = cards or [head.task for of_pass in heads for head in of_pass if head.task.named]
        self._ranks = {card.name: rank for rank, card in enumerate(self.cards)}
        self._never_splits = len(heads) == 1 and any(head.languages is None for head in heads[0])

    def split(self, ticket: Ticket) -> list[Ticket]:
        """The tickets of a decoded article for the tokenizer: itself if there is one pass, else a branch per pass.

        Without any task for its language the ticket is finished, and nothing goes there.
        """
        if self._never_splits:
            return [ticket]
        article = ticket.article
        assert article is not None
        passes = [index for index, heads in enumerate(self._heads) if any(is_for(head, article) for head in heads)]
        if not passes:
            ticket.finish(self._nothing(article))
            return []
        if len(self._heads) == 1:
            return [ticket]
        trunk = Trunk(ticket, self, len(passes))
        return [Branch.of(trunk, index) for index in passes]

    def joined(self, found: Mapping[int, EnrichedRecord], keep: Keep | None = None) -> EnrichedRecord:
        """One record of those of all branches of an article, by their passes; its tasks are in the order of the settings.

        The coverage is that of the task whose model the record names.
        """
        parts = [found[index] for index in sorted(found)]
        by_name = {report.task.name: report for part in parts for report in part.tasks}
        reports = [by_name.get(card.name) or TaskReport(card, None) for card in self.cards]
        named = principal(reports)
        listed: dict[str, list[Any]] = {}
        for part in parts:
            for listed_in, findings in part.findings.items():
                listed.setdefault(listed_in, []).extend(findings)
        entities = self._sort(EntityHead, [entity for part in parts for entity in part.entities])
        record = EnrichedRecord(
            parts[0].article,
            entities,
            (named and named.coverage) or parts[0].coverage,
            {name: self._sort(kind_of_field(name), findings) for name, findings in listed.items()},
            reports,
            {key: count for part in parts for key, count in part.labels.items()},
        )
        return keep(record) if keep else record

    def _sort(self, kind: type[Head], findings: Sequence[Any]) -> list[Any]:
        """In the order of the tasks; entities that name no task are all of one."""
        return sorted(findings, key=lambda each: self._ranks.get(kind.task_of(each), 0))

    def _nothing(self, article: Article) -> EnrichedRecord:
        tasks = [TaskReport(card, None) for card in self.cards]
        return EnrichedRecord(article, [], Coverage(tokens=0, windows=0, truncated=False), tasks=tasks)


@dataclass(slots=True, eq=False)
class Trunk:
    """A ticket with branches, and what is found so far. It does not refer to them: they are freed when nothing else does."""

    ticket: Ticket
    splitter: Splitter
    left: int
    """How many branches are not finished."""
    found: dict[int, EnrichedRecord] = field(default_factory=dict)
    """Answers by pass."""

    def joined(self, keep: Keep | None = None) -> EnrichedRecord | None:
        """The record of the article; None while a branch is not finished."""
        return None if self.left else self.splitter.joined(self.found, keep)


@dataclass(slots=True, eq=False, kw_only=True)
class Branch(Ticket):
    """The work of one pass on an article. Its record holds what this pass found; its dead letter is the article's."""

    trunk: Trunk

    @classmethod
    def of(cls, trunk: Trunk, pass_index: int) -> Branch:
        """A branch without tokens."""
        ticket = trunk.ticket
        branch = cls(ticket.raw, ticket.arrived_s, ticket.article, trunk=trunk)
        branch.pass_index, branch.span = pass_index, ticket.span
        return branch

    def finish(self, outcome: Outcome) -> None:
        """Set the outcome. A dead letter finishes the trunk; a record waits there for those of the other branches."""
        assert self.outcome is None, "a ticket is finished once"
        self.outcome = outcome
        trunk = self.trunk
        if isinstance(outcome, EnrichedRecord):
            trunk.found[self.pass_index] = outcome
            trunk.left -= 1
        elif isinstance(outcome, DeadLetter):
            trunk.ticket.pass_index = self.pass_index  # the pass that failed
            trunk.ticket.finish(outcome)

    def conclude(self, record: EnrichedRecord, keep: Keep | None = None) -> None:
        """Finish with what this pass found; the last branch also finishes the trunk."""
        self.finish(record)
        if joined := self.trunk.joined(keep):
            self.trunk.ticket.finish(joined)

    @property
    def whole(self) -> Ticket:
        """The trunk's ticket."""
        return self.trunk.ticket

    @property
    def live(self) -> bool:
        """True while the outcome is needed and still missing: late results for other branches of a trunk are dropped too."""
        return self.outcome is None and self.trunk.ticket.live
