"""The judge: reads the fake log and nothing else, and says what is wrong with it.

It knows the rule of exactly-once and what each article holds, by other means than the worker: no window, label, ticket or
tracker is in here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from loop.fake_log import FakeLog
from loop.fake_model import DEADLY
from loop.fake_schemas import SKIPPED, UNKNOWN
from loop.fake_sink import DEAD_LETTERS, KILLED, OUTPUT, Output

from enricher.worker.records import Partition

NOWHERE = ""
"""The topic of an output that there must not be."""
_NAME = re.compile(r"(?<!\S)[A-Z]\S*(?:\s+[A-Z]\S*)*")

Refuses = Callable[[Output], bool]
Expects = Callable[[bytes | None], tuple[str, object]]


def accept_all(_output: Output) -> bool:
    """A broker that takes every output."""
    return False


@lru_cache(maxsize=10_000)
def expected(value: bytes | None) -> tuple[str, object]:
    """The topic and the content of the one output that belongs to an input value."""
    if value is None or value == SKIPPED:
        return NOWHERE if value else OUTPUT, None
    title, newline, body = value.decode().partition("\n")
    if not newline or title.startswith(UNKNOWN):
        return DEAD_LETTERS, "decode"
    if "untokenizable" in body:
        return DEAD_LETTERS, "tokenize"
    if DEADLY in (title + " " + body).split():
        return DEAD_LETTERS, KILLED
    if "poison" in (title + " " + body).split():
        return DEAD_LETTERS, "inference"
    texts = (("title", title), ("body", body))
    return OUTPUT, [
        (name, *match.span(), match.group(), "NAME") for name, text in texts for match in _NAME.finditer(text)
    ]


def violations(log: FakeLog, refuses: Refuses = accept_all, expects: Expects = expected) -> list[str]:
    """What is wrong now: the visible outputs must be those of the inputs below the committed offsets, once, in order."""
    written = _outputs(log)
    return [wrong for partition in log.input for wrong in _wrong(log, partition, written[partition], refuses, expects)]


def unfinished(log: FakeLog) -> list[str]:
    """Partitions whose committed offset is not their end, transaction markers included."""
    return [
        f"{partition} is committed up to {log.committed.get(partition, 0)} of {log.partitions[partition].end}"
        for partition in log.input
        if not log.is_finished(partition)
    ]


def _wrong(
    log: FakeLog, partition: Partition, written: list[tuple[str, Output]], refuses: Refuses, expects: Expects
) -> list[str]:
    committed = log.committed.get(partition, 0)
    wanted = {
        offset: _expected_output(payload, partition, offset, refuses, expects)
        for offset, payload in log.read_committed(partition, committed)
    }
    wanted = {offset: output for offset, output in wanted.items() if output[0] != NOWHERE}
    wrong = [f"lost: {partition} {offset}" for offset in wanted.keys() - {output.offset for _, output in written}]
    seen: set[int] = set()
    for topic, output in written:
        if output.offset in seen:
            wrong.append(f"doubled: {partition} {output.offset}")
        elif output.offset not in wanted:
            wrong.append(f"published, but not committed: {partition} {output.offset} (committed {committed})")
        elif output.content == KILLED and _killed(log, partition, output.offset):
            pass  # by chance, perhaps: the processes may have died of something else
        elif output.content == KILLED or (topic, output.content) != wanted[output.offset]:
            wrong.append(f"wrong: {partition} {output.offset}: {output.content}, not {wanted[output.offset]}")
        seen.add(output.offset)
    for topic in (OUTPUT, DEAD_LETTERS):
        offsets = [output.offset for its_topic, output in written if its_topic == topic]
        if offsets != sorted(offsets):
            wrong.append(f"out of order: {partition} in {topic}: {offsets}")
    return wrong


def _killed(log: FakeLog, partition: Partition, offset: int) -> bool:
    """Two processes took the record alone, and neither went any further or took it back."""
    counted: set[object] = set()
    alone = 0
    for commit in log.commits:
        if commit.group_offsets.get(partition) == offset:
            if commit.marks[partition].alone > alone:
                counted.add(commit.life)
            elif commit.marks[partition].alone < alone:
                counted.discard(commit.life)
            alone = commit.marks[partition].alone
    return len(counted) >= 2


def _expected_output(
    payload: object, partition: Partition, offset: int, refuses: Refuses, expects: Expects
) -> tuple[str, object]:
    assert isinstance(payload, tuple)
    topic, content = expects(payload[1])
    return (DEAD_LETTERS, "publish") if refuses(Output(partition, offset, content)) else (topic, content)


def _outputs(log: FakeLog) -> dict[Partition, list[tuple[str, Output]]]:
    """The committed outputs of each input partition, wherever they stand, topic by topic in the order of the log."""
    found: dict[Partition, list[tuple[str, Output]]] = {partition: [] for partition in log.input}
    for partition in log.partitions:
        if partition.topic in (OUTPUT, DEAD_LETTERS):
            for _, output in log.stable_entries(partition):
                assert isinstance(output, Output)
                found[output.source].append((partition.topic, output))
    return found
