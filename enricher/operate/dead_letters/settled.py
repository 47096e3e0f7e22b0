"""Which dead letters of a partition are settled, and how a committed offset says it. Pure.

A letter is settled once it was redriven, or is superseded for good. A redrive selects, so settled letters and others lie
between each other, and one offset cannot say which is which. So the committed offset is that of the first letter that is not
settled, and the metadata beside it lists the stretches behind it: so many offsets settled, so many not, and so on. Both are
committed in the transaction that redrives. Offsets that hold no dead letter of ours (transaction markers, records of others)
may count as either, so they do not break a stretch.
"""

from __future__ import annotations

import re
import uuid
import zlib
from array import array
from base64 import b64decode, b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from enricher.errors import FatalError
from enricher.operate.dead_letters.letters import Letter

MAX_METADATA_BYTES = 4096
"""Kafka's default of `offset.metadata.max.bytes`, a setting of the broker that few change."""

_VERSION = "enricher-redrive/1"
_UNSETTLED = re.compile(rb"\0+")


class Commit(NamedTuple):
    """A committed offset of the dead-letter topic with its metadata."""

    offset: int
    metadata: str


class SettledTopic:
    """All partitions of the dead-letter topic: which letters are settled, and what of it is still to be committed.

    `ends`: the end of each partition. Raises FatalError if a commit cannot be read, or lies beyond that end.
    """

    def __init__(
        self, topic: str, topic_id: str | None, committed: Mapping[int, Commit], ends: Mapping[int, int]
    ) -> None:
        self._topic = topic
        self._partitions = {number: SettledLetters(committed.get(number), topic_id) for number in ends}
        self._changed: set[int] = set()
        self._run = uuid.uuid4().hex[:8]
        for number, settled in self._partitions.items():
            if settled.start > ends[number]:
                raise FatalError(_BEYOND.format(number=number, topic=topic))

    @property
    def starts(self) -> Mapping[int, int]:
        """The offset of each partition below which no letter is unsettled."""
        return {number: settled.start for number, settled in self._partitions.items()}

    @property
    def changed(self) -> bool:
        """Whether letters were settled since `note_committed`."""
        return bool(self._changed)

    def note(self, letter: Letter) -> None:
        """Note the next letter of its partition."""
        self._partitions[letter.number].note(letter.offset)

    def has(self, letter: Letter) -> bool:
        """Whether a letter that was noted is settled."""
        return self._partitions[letter.number].has(letter.offset)

    def settle(self, letters: Iterable[Letter], *, is_settled: bool = True) -> None:
        """Settle letters that were noted, or take that back."""
        for letter in letters:
            self._partitions[letter.number].settle(letter.offset, is_settled=is_settled)
            self._changed.add(letter.number)

    def commits(self) -> Mapping[int, Commit]:
        """The commits for the partitions that changed. Raises FatalError if Kafka does not take one that long."""
        commits = {number: self._partitions[number].commit(self._run) for number in sorted(self._changed)}
        for number, commit in commits.items():
            if len(commit.metadata) > MAX_METADATA_BYTES:
                raise FatalError(_TOO_SCATTERED.format(number=number, topic=self._topic))
        return commits

    def note_committed(self) -> None:
        """Note that `commits` were committed."""
        self._changed.clear()


class SettledLetters:
    """The dead letters of one partition: `note` each in order, then `settle` some.

    `commit`: the committed one, None at the first redrive. `topic_id`: that of the dead-letter topic; a commit that names
    another one belongs to an earlier topic and says nothing. `start`: no letter below it is unsettled. Raises FatalError if
    the metadata cannot be read: guessing would redrive letters twice.
    """

    def __init__(self, commit: Commit | None, topic_id: str | None) -> None:
        self._topic_id = topic_id
        self._offsets = array("q")
        self._settled = bytearray()
        self._starts: list[int] = []
        self._stops: list[int] = []
        self.start = 0
        if commit is None:
            return
        version, *texts = commit.metadata.split(" ")
        # A tool that resets offsets writes an empty string.
        fields = dict(text.split("=", 1) for text in texts if "=" in text) if version == _VERSION else {}
        if topic_id is not None and fields.get("topic-id", topic_id) != topic_id:
            return
        try:
            packed = b64decode(fields.get("stretches", ""), validate=True)
            lengths = [int(length) for length in zlib.decompress(packed).split(b",")] if packed else []
        except (ValueError, zlib.error) as error:
            message = "the committed offset says in a damaged form which dead letters were redriven"
            raise FatalError(message) from error
        self.start = position = commit.offset
        for index, length in enumerate(lengths):
            if index % 2 == 0:
                self._starts.append(position)
                self._stops.append(position + length)
            position += length

    def note(self, offset: int) -> None:
        """Note the next letter."""
        before = bisect_right(self._starts, offset) - 1
        self._offsets.append(offset)
        self._settled.append(offset < self.start or (before >= 0 and offset < self._stops[before]))

    def has(self, offset: int) -> bool:
        """Whether a letter that was noted is settled."""
        return bool(self._settled[self._index(offset)])

    def settle(self, offset: int, *, is_settled: bool = True) -> None:
        """Settle a letter that was noted, or take that back."""
        self._settled[self._index(offset)] = is_settled

    def commit(self, run: str) -> Commit:
        """The commit for the present state. `run` names this process, whose commits must differ from any other's."""
        spans = [
            (self._offsets[found.start()], self._offsets[found.end() - 1] + 1)
            for found in _UNSETTLED.finditer(self._settled)
        ]
        end = max(self.start, self._offsets[-1] + 1 if self._offsets else 0)
        position = offset = spans[0][0] if spans else end
        lengths: list[int] = []
        for start, stop in spans:
            lengths += [start - position, stop - start]
            position = stop
        fields = {"topic-id": self._topic_id, "run": run}
        if lengths[2:] or position < end:
            packed = zlib.compress(",".join(map(str, [*lengths, end - position])).encode(), 9)
            fields["stretches"] = b64encode(packed).decode()
        texts = [f"{name}={value}" for name, value in fields.items() if value is not None]
        return Commit(offset, " ".join([_VERSION, *texts]))

    def _index(self, offset: int) -> int:
        index = bisect_left(self._offsets, offset)
        assert self._offsets[index] == offset, "only letters that were noted"
        return index


_BEYOND = (
    "the redrive's group has committed an offset beyond the end of '{topic}' in partition {number}: the topic has lost its "
    "end, or was created again. Set the group's offsets back (kafka-consumer-groups --reset-offsets)"
)
_TOO_SCATTERED = (
    "the dead letters of '{topic}' that are left in partition {number} are too scattered among those that are done for one "
    "commit to list them, so no more are sent. Redrive with a selection that leaves fewer between: by time instead of by "
    "type, or the older ones first (--until)"
)
