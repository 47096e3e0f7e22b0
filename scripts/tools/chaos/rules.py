"""Rules for matching requests and replies in the proxy: hold, drop, delay, cut, or watch.

A rule may be created in any thread. It works in the proxy's thread from `Proxy.apply` until `Proxy.lift`, which releases
every frame that it holds. A held frame delays everything behind it on the same connection and in the same direction, as
a slow network would.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tools.chaos.frames import Request


class Verdict(Enum):
    """The fate of a frame."""

    PASS = "pass"  # noqa: S105  no password
    DROP = "drop"
    CUT = "cut"
    """Reset the whole connection."""


class Connection(Protocol):
    """The connection that a request came from, as far as a rule may touch it."""

    def hang_up(self) -> None:
        """Close the client's side; what the client has sent still reaches the broker."""
        ...


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

    async def request(self, connection: Connection, request: Request, arrived_s: float) -> Verdict:  # noqa: ARG002
        """Decide about a request to the broker that arrived at `arrived_s` (monotonic)."""
        return Verdict.PASS

    async def reply(self, request: Request, arrived_s: float) -> Verdict:  # noqa: ARG002
        """Decide about a reply to the client."""
        return Verdict.PASS

    def altered(self, request: Request, frame: bytes) -> bytes:  # noqa: ARG002
        """Return the frame to send to the client instead of `frame` (with size and correlation id). Must not block."""
        return frame


class _Nth(Rule):
    """A rule for the `nth` match only, counted from 1."""

    def __init__(self, match: Match, nth: int = 1) -> None:
        super().__init__(match)
        self._left = nth

    def _is_it(self) -> bool:
        self._left -= 1
        return self._left == 0


class Watch(_Nth):
    """Sets `caught` when the `nth` matching request passes."""

    async def request(self, connection: Connection, request: Request, arrived_s: float) -> Verdict:  # noqa: ARG002
        if self._is_it():
            self.caught.set()
        return Verdict.PASS


class Answered(_Nth):
    """Sets `caught` when the `nth` matching request is answered: the broker has executed or refused it."""

    async def reply(self, request: Request, arrived_s: float) -> Verdict:  # noqa: ARG002
        if self._is_it():
            self.caught.set()
        return Verdict.PASS


class Hold(_Nth):
    """Holds the `nth` matching request until lifted. With `hang_up` the client's connection is closed at that moment.

    The client then repeats the request on a new connection, where it is not held; the held one reaches the broker late, like
    a delayed packet.
    """

    def __init__(self, match: Match, nth: int = 1, *, hang_up: bool = False) -> None:
        super().__init__(match, nth)
        self._hang_up = hang_up

    async def request(self, connection: Connection, request: Request, arrived_s: float) -> Verdict:  # noqa: ARG002
        if self._is_it():
            self.caught.set()
            if self._hang_up:
                connection.hang_up()
            await self.lifted.wait()
        return Verdict.PASS


class DropReply(_Nth):
    """Drops the reply to the `nth` matching request: the broker has executed it, and the client does not learn of it.

    `instead` is called at that moment in the proxy's thread; it must not block, because nothing else passes meanwhile.
    """

    def __init__(self, match: Match, nth: int = 1, *, instead: Callable[[], None] | None = None) -> None:
        super().__init__(match, nth)
        self._instead = instead

    async def reply(self, request: Request, arrived_s: float) -> Verdict:  # noqa: ARG002
        if self._is_it():
            if self._instead:
                self._instead()
            self.caught.set()
            return Verdict.DROP
        return Verdict.PASS


class Delay(Rule):
    """Delays every frame by `seconds`, each way. Lifting it releases all frames at once."""

    def __init__(self, match: Match, seconds: float) -> None:
        super().__init__(match)
        self._seconds = seconds

    async def request(self, connection: Connection, request: Request, arrived_s: float) -> Verdict:  # noqa: ARG002
        return await self._wait(arrived_s)

    async def reply(self, request: Request, arrived_s: float) -> Verdict:  # noqa: ARG002
        return await self._wait(arrived_s)

    async def _wait(self, arrived_s: float) -> Verdict:
        self.caught.set()
        left_s = arrived_s + self._seconds - time.monotonic()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.lifted.wait(), max(0.0, left_s))
        return Verdict.PASS


class Cut(Rule):
    """Resets matching connections, and new ones at their first request, until lifted."""

    cuts_at_once = True

    async def request(self, connection: Connection, request: Request, arrived_s: float) -> Verdict:  # noqa: ARG002
        self.caught.set()
        return Verdict.CUT
