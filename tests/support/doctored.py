"""Outputs as a correct worker would write them, for tests to alter before the check runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from support import operating
from support.topics import Topics
from tools.chaos.check import Findings, Incarnation, check, topic_id_of
from tools.chaos.reference import expected
from tools.chaos.workload import Articles, Input
from tools.reading import InputId
from tools.topics import Topics as Names

COUNT = 120
Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class Answer:
    """One output: its input, key, value and partition."""

    input_id: InputId
    key: bytes
    value: bytes | None
    stage: str | None
    partition: int = 0

    @property
    def record(self) -> dict[str, Any]:
        """The arguments of `produce`."""
        return {"value": self.value, "key": self.key, "headers": self.headers, "partition": self.partition}

    @property
    def headers(self) -> Headers:
        """The headers that the check reads, as in the schemas."""
        prefix = "enricher" if self.stage is None else "enricher.dlq"
        source: Headers = [
            (f"{prefix}.source.topic.id", self.input_id.topic_id),
            (f"{prefix}.source.partition", str(self.input_id.partition)),
            (f"{prefix}.source.offset", str(self.input_id.offset)),
        ]
        return source if self.stage is None else [*source, ("enricher.dlq.stage", self.stage)]


def right_answers(topics: Topics, name: str = "check") -> list[Answer]:
    """Publish inputs to partition 0; returns the correct outputs."""
    articles = Articles(name)
    inputs = [articles.input(number) for number in range(COUNT)]
    records = ({"value": each.value, "key": each.key, "partition": 0} for each in inputs)
    operating.write(topics.bootstrap_servers, topics.input, records)
    topic_id = topic_id_of(topics.bootstrap_servers, topics.input)
    return [_answer_to(each, InputId(topic_id, 0, number)) for number, each in enumerate(inputs)]


def _answer_to(given: Input, input_id: InputId) -> Answer:
    wanted = expected(given.value)
    stage = wanted.kind if wanted.kind in {"decode", "inference"} else None
    return Answer(input_id, given.key, wanted.value, stage)


def verdict(
    topics: Topics, answers: Sequence[Answer], *, committed: int = COUNT, past: Sequence[Incarnation] = ()
) -> Findings:
    """Write the outputs, commit the offset, run the check."""
    for topic, is_dead in ((topics.output, False), (topics.dead_letters, True)):
        records = [each.record for each in answers if is_dead is (each.stage is not None)]
        operating.write(topics.bootstrap_servers, topic, records)
    commit(topics, committed)
    return check(names_of(topics), Counter(each.input_id for each in answers), past)


def commit(topics: Topics, offset: int) -> None:
    """Commit for the group: this offset in partition 0, and 0 in the others."""
    offsets = {number: 0 if number else offset for number in range(4)}
    operating.commit(topics.bootstrap_servers, topics.group, topics.input, offsets)


def names_of(topics: Topics) -> Names:
    """The topics as the fault matrix calls them."""
    return Names(topics.bootstrap_servers, *topics.all, topics.group)
