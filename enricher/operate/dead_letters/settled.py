"""Which dead letters are settled: those below the committed offset of their partition. Pure.

A letter is settled once it was redriven, or is superseded. The first one that is left, because it was not selected for
example, keeps the offset where it is, so that a later run finds it. Those behind it that were sent are found again as well:
their record in the input names the letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import TopicPartition

from enricher.errors import FatalError
from enricher.operate.dead_letters.letters import Letter
from enricher.worker.rules.commit_metadata import CommitMetadata

_EARLIER_FORM = "stretches="


def committed_starts(committed: Iterable[TopicPartition], topic_id: str | None) -> dict[int, int]:
    """The offsets that the redrive's group has committed for this very topic, by partition.

    Raises FatalError for one of an earlier version that left letters between others that it sent.
    """
    starts = {}
    for tp in committed:
        if _EARLIER_FORM in (tp.metadata or ""):
            raise FatalError(_UNREADABLE.format(place=f"{tp.topic}[{tp.partition}]"))
        if tp.offset >= 0 and CommitMetadata.decode(tp.metadata).is_of(topic_id):
            starts[tp.partition] = tp.offset
    return starts


class Progress:
    """How far a run has come in each partition. `starts`: where it begins there."""

    def __init__(self, starts: Mapping[int, int]) -> None:
        self._next = dict(starts)
        self._first_left: dict[int, int] = {}

    def leave(self, letter: Letter) -> None:
        """Note a letter that stays unsettled."""
        self._first_left[letter.number] = min(letter.offset, self._first_left.get(letter.number, letter.offset))

    def pass_by(self, number: int, offset: int) -> None:
        """Note that everything before the offset was sent, superseded, left, or is about to be committed."""
        self._next[number] = offset

    def offsets(self, waiting: Iterable[Letter] = ()) -> dict[int, int]:
        """The offset of each partition below which all is settled. `waiting`: passed by, and sent only later."""
        left = dict(self._first_left)
        for letter in waiting:
            left[letter.number] = min(letter.offset, left.get(letter.number, letter.offset))
        return {number: min(at, left.get(number, at)) for number, at in self._next.items()}


_UNREADABLE = (
    "an earlier version of the redrive has left letters of {place} between others that it sent, and noted that in a form "
    "which this version does not read. Let that version send what is left, or delete the offsets of the redrive's group "
    "(kafka-consumer-groups --delete-offsets): then letters without a key that it sent are sent once more, and give --since"
)
