"""Rules that change replies: an OffsetFetch answered with an error, records with a damaged byte."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING

from tools.chaos.rules import Rule

if TYPE_CHECKING:
    from tools.chaos.frames import Request
    from tools.chaos.rules import Match

_SIZE = struct.Struct(">i")
_ERROR = struct.Struct(">h")
_CORRELATION = slice(4, 8)
_THROTTLE = bytes(4)
_NO_TAGS = b"\x00"
_NO_ELEMENTS, _NO_ELEMENTS_COMPACT, _ONE_ELEMENT_COMPACT = bytes(4), b"\x01", b"\x02"
_FIRST_WITH_ERROR, _FIRST_WITH_THROTTLE, _FIRST_FLEXIBLE, _FIRST_WITH_GROUPS = 2, 3, 6, 8
_GROUPS_AT = 13
"""Size, correlation id, tagged header fields and throttle time precede the groups of version 8."""


class OffsetsError(IntEnum):
    """Error codes with which a broker answers an OffsetFetch when it does not know the offsets."""

    UNKNOWN_SERVER_ERROR = -1
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16


class WrongOffsets(Rule):
    """Replaces the first `times` replies to an OffsetFetch by an error without offsets."""

    def __init__(self, match: Match, error: OffsetsError, times: int = 1) -> None:
        super().__init__(match)
        self._error = error
        self._left = times

    def altered(self, request: Request, frame: bytes) -> bytes:
        if not self._left:
            return frame
        self._left -= 1
        self.caught.set()
        return offsets_refused(frame, request.version, self._error)


class DamagedRecords(Rule):
    """Flips one bit of one record's value in every other Fetch reply, as a faulty network card does.

    The bit is the first one after `marker`, by default in the article's id, which every output repeats. The checksum of the
    batch is left as it was.
    """

    def __init__(self, match: Match, marker: bytes = b'{"id":"') -> None:
        super().__init__(match)
        self._marker = marker
        self._whole_next = False
        self.damaged = 0
        """How many replies were damaged."""

    def altered(self, request: Request, frame: bytes) -> bytes:  # noqa: ARG002
        found = frame.find(self._marker)
        if found < 0:
            return frame
        whole, self._whole_next = self._whole_next, not self._whole_next
        if whole:
            return frame
        at = found + len(self._marker)
        self.damaged += 1
        self.caught.set()
        return frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]


def offsets_refused(frame: bytes, version: int, error: int) -> bytes:
    """The reply with which a broker refuses an OffsetFetch with `error`, built from `frame`, its real reply.

    Raises ValueError for versions 0 and 1, which have no top-level error, and for several groups in one reply.
    """
    if version < _FIRST_WITH_ERROR:
        message = f"version {version} of OffsetFetch names an error for each partition only"
        raise ValueError(message)
    body = _body_of_refusal(frame, version, _ERROR.pack(error))
    return _SIZE.pack(4 + len(body)) + frame[_CORRELATION] + body


def _body_of_refusal(frame: bytes, version: int, error: bytes) -> bytes:
    if version < _FIRST_WITH_THROTTLE:
        return _NO_ELEMENTS + error
    if version < _FIRST_FLEXIBLE:
        return _THROTTLE + _NO_ELEMENTS + error
    if version < _FIRST_WITH_GROUPS:
        return _NO_TAGS + _THROTTLE + _NO_ELEMENTS_COMPACT + error + _NO_TAGS
    group = _only_group(frame) + _NO_ELEMENTS_COMPACT + error + _NO_TAGS
    return _NO_TAGS + _THROTTLE + _ONE_ELEMENT_COMPACT + group + _NO_TAGS


def _only_group(frame: bytes) -> bytes:
    """The group id in a reply of version 8, with its length byte."""
    if frame[_GROUPS_AT : _GROUPS_AT + 1] != _ONE_ELEMENT_COMPACT:
        message = "a reply to an OffsetFetch of several groups cannot be forged"
        raise ValueError(message)
    length = frame[_GROUPS_AT + 1] - 1  # one byte holds the lengths up to 126
    return frame[_GROUPS_AT + 1 : _GROUPS_AT + 2 + length]
