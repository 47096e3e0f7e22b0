"""Rules for matching requests and replies in the proxy: hold, drop, delay, cut, or watch; and the framing of both.

A rule may be created in any thread. It works in the proxy's thread from `Proxy.apply` until `Proxy.lift`, which releases
every frame that it holds. A held frame delays everything behind it on the same connection and in the same direction, as
a slow network would. Sizes and headers of frames are read, and no bodies: the protocol guide (kafka.apache.org/protocol),
request header versions 1 and 2, which begin alike.
"""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from asyncio import StreamReader
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, IntEnum

_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")  # api, version, correlation id, length of the client's id


class Api(IntEnum):
    """The API keys that the fault matrix uses."""

    PRODUCE = 0
    METADATA = 3
    FIND_COORDINATOR = 10
    HEARTBEAT = 12
    API_VERSIONS = 18
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28


@dataclass(frozen=True, slots=True)
class Request:
    """The header of one request. `node`: index of the node it is sent to."""

    api: int
    version: int
    correlation_id: int
    client: str
    node: int


async def read_frame(reader: StreamReader) -> bytes:
    """Read one frame, size included. Raises IncompleteReadError or an OSError when the connection ends."""
    size = await reader.readexactly(_SIZE.size)
    return size + await reader.readexactly(_SIZE.unpack(size)[0])


def request_of(frame: bytes, node: int) -> Request:
    """Parse the header of a request frame."""
    api, version, correlation_id, length = _HEADER.unpack_from(frame, _SIZE.size)
    start = _SIZE.size + _HEADER.size
    return Request(api, version, correlation_id, frame[start : start + max(0, length)].decode(), node)


def correlation_id_of(frame: bytes) -> int:
    """The correlation id of a reply frame."""
    number: int = _SIZE.unpack_from(frame, _SIZE.size)[0]
    return number


class Verdict(Enum):
    """The fate of a frame."""

    PASS = "pass"  # noqa: S105  no password
    DROP = "drop"
    CUT = "cut"
    """Reset the whole connection."""


HangUp = Callable[[], None]
"""Closes the client's side of the connection; what the client has sent still reaches the broker."""


@dataclass(frozen=True, slots=True)
class Match:
    """Which requests, with their replies, a rule applies to. `client`: prefix of the client id. None matches everything."""

    apis: Container[int] | None = None
    client: str | None = None
    nodes: Container[int] | None = None

    def takes(self, request: Request) -> bool:
        return (
            (self.apis is None or request.api in self.apis)
            and (self.client is None or request.client.startswith(self.client))
            and (self.nodes is None or request.node in self.nodes)
        )


class Rule:
    """Base class; passes everything on. `caught` is set once the rule has taken effect, and may be read in any thread."""

    cuts_at_once = False
    """Whether matching connections are cut when the rule is applied."""

    def __init__(self, match: Match) -> None:
        self.match = match
        self.caught = threading.Event()
        self.lifted = asyncio.Event()
        """Only for the proxy's thread."""

    async def judge(self, hang_up: HangUp, arrived_s: float, *, is_reply: bool) -> Verdict:  # noqa: ARG002
        """Decide about a request to the broker, or a reply to the client, that arrived at `arrived_s` (monotonic)."""
        return Verdict.PASS


class Watch(Rule):
    """Sets `caught` when the `nth` matching request passes, counted from 1."""

    of_replies = False
    """Whether replies count instead of requests."""

    def __init__(self, match: Match, nth: int = 1) -> None:
        super().__init__(match)
        self._left = nth

    async def judge(self, hang_up: HangUp, arrived_s: float, *, is_reply: bool) -> Verdict:  # noqa: ARG002
        if is_reply is self.of_replies:
            self._left -= 1
            if self._left == 0:
                self.caught.set()
                return await self.act(hang_up)
        return Verdict.PASS

    async def act(self, hang_up: HangUp) -> Verdict:  # noqa: ARG002
        """Treat the frame that was caught."""
        return Verdict.PASS


class Answered(Watch):
    """Sets `caught` when the `nth` matching request is answered: the broker has executed or refused it."""

    of_replies = True


class Hold(Watch):
    """Holds the `nth` matching request until lifted. With `hang_up` the client's connection is closed at that moment.

    The client then repeats the request on a new connection, where it is not held; the held one reaches the broker late, like
    a delayed packet.
    """

    def __init__(self, match: Match, nth: int = 1, *, hang_up: bool = False) -> None:
        super().__init__(match, nth)
        self._hang_up = hang_up

    async def act(self, hang_up: HangUp) -> Verdict:
        if self._hang_up:
            hang_up()
        await self.lifted.wait()
        return Verdict.PASS


class DropReply(Answered):
    """Drops the reply to the `nth` matching request: the broker has executed it, and the client does not learn of it."""

    async def act(self, hang_up: HangUp) -> Verdict:  # noqa: ARG002
        return Verdict.DROP


class Delay(Rule):
    """Delays every frame by `seconds`, each way. Lifting it releases all frames at once."""

    def __init__(self, match: Match, seconds: float) -> None:
        super().__init__(match)
        self._seconds = seconds

    async def judge(self, hang_up: HangUp, arrived_s: float, *, is_reply: bool) -> Verdict:  # noqa: ARG002
        self.caught.set()
        left_s = arrived_s + self._seconds - time.monotonic()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.lifted.wait(), max(0.0, left_s))
        return Verdict.PASS


class Cut(Rule):
    """Resets matching connections, and new ones at their first request, until lifted."""

    cuts_at_once = True

    async def judge(self, hang_up: HangUp, arrived_s: float, *, is_reply: bool) -> Verdict:  # noqa: ARG002
        if is_reply:
            return Verdict.PASS
        self.caught.set()
        return Verdict.CUT
