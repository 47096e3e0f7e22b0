"""The version of an output, by which an index keeps the newest output of a key.

    bits of an int64   62 .. 55   54 .. 12        11 .. 0
                       epoch      source offset   generation of the model

It orders the outputs of one input partition, and so those of one key. `schemas/README.md` says what it does not order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from enricher.errors import FatalError

if TYPE_CHECKING:
    from enricher.worker.records.input_records import RawRecord

_EPOCH_BITS, _OFFSET_BITS, _GENERATION_BITS = 8, 43, 12

MAX_EPOCH, MAX_OFFSET, MAX_GENERATION = (2**bits - 1 for bits in (_EPOCH_BITS, _OFFSET_BITS, _GENERATION_BITS))


def record_version(epoch: int, offset: int, generation: int) -> int:
    """The version of the output of the input at `offset`, 0 to 2**63 - 1. Raises ValueError for numbers out of range."""
    _require("epoch", epoch, MAX_EPOCH)
    _require("source offset", offset, MAX_OFFSET)
    _require("generation", generation, MAX_GENERATION)
    return ((epoch << _OFFSET_BITS) | offset) << _GENERATION_BITS | generation


def epoch_of(version: int) -> int:
    """The epoch in a version."""
    return version >> (_OFFSET_BITS + _GENERATION_BITS)


def _require(name: str, value: int, largest: int) -> None:
    if not 0 <= value <= largest:
        raise ValueError(f"the {name} of a version must be 0 to {largest}, not {value}")


@dataclass(frozen=True, slots=True)
class Versioning:
    """Gives each input record the version of its output. `epoch`: `kafka.epoch`; `generation`: `model.generation`."""

    epoch: int = 0
    generation: int = 0

    def version_of(self, raw: RawRecord) -> int:
        """The version of its output. Raises FatalError if the offset is too large for one."""
        try:
            return record_version(self.epoch, raw.offset, self.generation)
        except ValueError as error:
            topic, number = raw.partition
            advice = f"make the topic again and raise kafka.epoch above {self.epoch}"
            raise FatalError(f"{topic}[{number}]: {error}; {advice}") from error
