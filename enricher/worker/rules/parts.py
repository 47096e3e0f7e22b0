"""The parts of an article's work: one for each pass that the article needs, usually one.

Each goes through tokenizer, windows and model by itself. What is read, released and committed is the ticket: it is finished
after the last of its parts, or with the dead letter of any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from enricher.worker.heads import EntityHead, Head, is_for, kind_of_field, principal
from enricher.worker.records import (
    Article,
    Coverage,
    EnrichedRecord,
    Part,
    TaskCard,
    TaskReport,
    Ticket,
)


class Splitter:
    """Makes the parts of tickets. `heads`: of each pass; `cards`: of all tasks, in the order of the settings."""

    def __init__(self, heads: Sequence[Sequence[Head]], cards: Sequence[TaskCard] = ()) -> None:
        assert heads, "a worker has a pass"
        self._heads = heads
        self.cards = cards or [head.task for of_pass in heads for head in of_pass]
        self._ranks = {card.name: rank for rank, card in enumerate(self.cards)}
        self._never_splits = len(heads) == 1 and any(head.languages is None for head in heads[0])

    def split(self, ticket: Ticket) -> list[Part]:
        """The parts of a decoded article for the tokenizer: one for each pass with a task for its language.

        Without any the ticket is finished, and nothing goes there.
        """
        if self._never_splits:
            return [Part(ticket)]
        article = ticket.article
        assert article is not None
        passes = [index for index, heads in enumerate(self._heads) if any(is_for(head, article) for head in heads)]
        if not passes:
            ticket.finish(self._nothing(article))
        if len(self._heads) == 1:
            return [Part(ticket, index) for index in passes]
        found = Found(self, len(passes))
        return [Part(ticket, index, found.add) for index in passes]

    def join(self, found: Mapping[int, EnrichedRecord]) -> EnrichedRecord:
        """Join the records of all passes of an article; the tasks are in the order of the settings.

        The coverage is that of the task whose model the record names.
        """
        records = [found[index] for index in sorted(found)]
        by_name = {report.task.name: report for record in records for report in record.tasks}
        reports = [by_name.get(card.name) or TaskReport(card, None) for card in self.cards]
        listed: dict[str, list[Any]] = {}
        for record in records:
            for listed_in, findings in record.findings.items():
                listed.setdefault(listed_in, []).extend(findings)
        entities = self._sort(EntityHead, [entity for record in records for entity in record.entities])
        return EnrichedRecord(
            records[0].article,
            entities,
            principal(reports).coverage or records[0].coverage,
            reports,
            {name: self._sort(kind_of_field(name), findings) for name, findings in listed.items()},
            {key: count for record in records for key, count in record.labels.items()},
        )

    def _sort(self, kind: type[Head], findings: Sequence[Any]) -> list[Any]:
        """The findings in the order of the tasks; entities that name no task are all of one."""
        return sorted(findings, key=lambda each: self._ranks.get(kind.task_of(each), 0))

    def _nothing(self, article: Article) -> EnrichedRecord:
        tasks = [TaskReport(card, None) for card in self.cards]
        return EnrichedRecord(article, [], Coverage(tokens=0, windows=0, truncated=False), tasks)


@dataclass(slots=True, eq=False)
class Found:
    """Collects what the passes of one article found. Its parts refer to it, and it to none: they are freed one by one."""

    splitter: Splitter
    left: int
    """How many parts are not done."""
    records: dict[int, EnrichedRecord] = field(default_factory=dict)

    def add(self, pass_index: int, record: EnrichedRecord) -> EnrichedRecord | None:
        """Add what a pass found. Returns the record of the article after the last one."""
        self.records[pass_index] = record
        self.left -= 1
        return None if self.left else self.splitter.join(self.records)
