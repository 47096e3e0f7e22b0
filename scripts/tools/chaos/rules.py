"""What the proxy does to requests and replies that match: hold, drop, delay, silence, cut, or only watch.

Rules that change what a reply says are in `forgeries`.

A rule is made anywhere, works in the proxy's own thread from `Proxy.apply` on, and ends with `Proxy.lift`, which lets go
of everything that it keeps. What it keeps holds up all that is behind it on the same connection and in the same
direction, as a slow network would.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from tools.chaos.frames import Request


class Verdict(Enum):
    """What becomes of a frame."""

    PASS = "pass"  # noqa: S105  no password
    DROP = "drop"
    CUT = "cut"
    """The whole connection ends, with a reset."""


class Direction(Enum):
    """The way of a frame."""

    TO_BROKER = "to the broker"
    TO_CLIENT = "to the client"


class Connection(Protocol):
    """What a rule may do to the connection that a request came by."""

    def hang_up(self) -> None:
        """End the client's side; what it has sent still reaches the broker."""
        ...


@dataclass(frozen=True, slots=True)
class Match:
    """Which requests a rule is for, and the replies to them. `client` is (the beginning of) the client's id; None: any."""

    apis: Container[int] | None = None
    client: str | None = None
    nodes: Container[int] | None = None

    def takes(self, request: Request) -> bool:
        """Whether it is one of those."""
        return (
            (self.apis is None or request.api in self.apis)
            and (self.client is None or request.client.startswith(self.client))
            and (self.nodes is None or request.node in self.nodes)
        )


class Rule:
    """Passes everything on: what the others are made from. `caught` is set, for any thread, once it did its work."""

    cuts_at_once = False
    """Whether connections that match end when the rule is applied."""

    def __init__(self, match: Match) -> None:
        self.match = match
        self.caught = threading.Event()
        self.lifted = asyncio.Event()
        """For the proxy's thread alone."""

    async def request(self, connection: Connection, request: Request, arrived_s: float) -> Verdict:  # noqa: ARG002
        """A request on its way to the broker; it came at `arrived_s`, monotonic."""
        return Verdict.PASS

    async def reply(self, request: Request, arrived_s: float) -> Verdict:  # noqa: ARG002
        """The reply to a request on its way to the client."""
        return Verdict.PASS

    def altered(self, request: Request, frame: bytes) -> bytes:  # noqa: ARG002
        """The frame that the client gets for the reply's `frame`, size and correlation id included. Must not block."""
        return frame


class _Nth(Rule):
    """For one of those that match: the `nth`, counted from 1."""

    def __init__(self, match: Match, nth: int = 1) -> None:
        super().__init__(match)
        self._left = nth

    def _is_it(self) -> bool:
        self._left -= 1
        return self._left == 0


class Watch(_Nth):
    """Tells when the `nth` matching request comes by."""

    async def request(self, connection: Connection, request: Request, arrived_s: float) -> Verdict:  # noqa: ARG002
        """Tell."""
        if self._is_it():
            self.caught.set()
        return Verdict.PASS


class Answered(_Nth):
    """Tells when the `nth` matching request is answered: the broker has carried it out, or refused."""

    async def reply(self, request: Request, arrived_s: float) -> Verdict:  # noqa: ARG002
        """Tell."""
        if self._is_it():
            self.caught.set()
        return Verdict.PASS


class Hold(_Nth):
    """Keeps the `nth` matching request until lifted. With `hang_up` the client loses its connection at that moment.

    It then sends the request again on a new one, which is not held; the first one reaches the broker late, as a packet
    that was long under way does.
    """

    def __init__(self, match: Match, nth: int = 1, *, hang_up: bool = False) -> None:
        super().__init__(match, nth)
        self._hang_up = hang_up

    async def request(self, connection: Connection, request: Request, arrived_s: float) -> Verdict:  # noqa: ARG002
        """Keep it."""
        if self._is_it():
            self.caught.set()
            if self._hang_up:
                connection.hang_up()
            await self.lifted.wait()
        return Verdict.PASS


class DropReply(_Nth):
    """Swallows the reply to the `nth` matching request that is answered: the broker has done it, nobody is told.

    `instead` is called at that moment, in the proxy's thread, and must not block: nothing else gets through meanwhile.
    """

    def __init__(self, match: Match, nth: int = 1, *, instead: Callable[[], None] | None = None) -> None:
        super().__init__(match, nth)
        self._instead = instead

    async def reply(self, request: Request, arrived_s: float) -> Verdict:  # noqa: ARG002
        """Swallow it."""
        if self._is_it():
            if self._instead:
                self._instead()
            self.caught.set()
            return Verdict.DROP
        return Verdict.PASS


class Delay(Rule):
    """Everything takes `seconds` longer, each way. Lifting it lets all go at once."""

    def __init__(self, match: Match, seconds: float) -> None:
        super().__init__(match)
        self._seconds = seconds

    async def request(self, connection: Connection, request: Request, arrived_s: float) -> Verdict:  # noqa: ARG002
        """Wait."""
        return await self._wait(arrived_s)

    async def reply(self, request: Request, arrived_s: float) -> Verdict:  # noqa: ARG002
        """Wait."""
        return await self._wait(arrived_s)

    async def _wait(self, arrived_s: float) -> Verdict:
        self.caught.set()
        left_s = arrived_s + self._seconds - time.monotonic()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.lifted.wait(), max(0.0, left_s))
        return Verdict.PASS


class Silence(Rule):
    """Nothing gets through in `directions`; connections stay. Lifted, all arrives, as after TCP's retransmission."""

    def __init__(self, match: Match, directions: Container[Direction]) -> None:
        super().__init__(match)
        self._directions = directions

    async def request(self, connection: Connection, request: Request, arrived_s: float) -> Verdict:  # noqa: ARG002
        """Wait."""
        return await self._wait(Direction.TO_BROKER)

    async def reply(self, request: Request, arrived_s: float) -> Verdict:  # noqa: ARG002
        """Wait."""
        return await self._wait(Direction.TO_CLIENT)

    async def _wait(self, direction: Direction) -> Verdict:
        if direction in self._directions:
            self.caught.set()
            await self.lifted.wait()
        return Verdict.PASS


class Cut(Rule):
    """Resets connections that match, and every new one with its first request, until lifted."""

    cuts_at_once = True

    async def request(self, connection: Connection, request: Request, arrived_s: float) -> Verdict:  # noqa: ARG002
        """Reset."""
        self.caught.set()
        return Verdict.CUT
