"""One connection through the proxy: the client's side, the broker's side, and the frames in transit between them.

Each direction has a reader, which records when a frame arrived, and a writer, which asks the rules and forwards in order.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tools.chaos.frames import correlation_id_of, read_frame, request_of
from tools.chaos.rules import Verdict

if TYPE_CHECKING:
    from tools.chaos.frames import Request
    from tools.chaos.rules import Rule

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Frames = asyncio.Queue[tuple[float, bytes] | None]
"""Arrival time and frame; None marks the end of the stream."""

ANSWER_S = 30.0
"""How long replies are read after the client has gone: the broker executes requests only as it can send replies."""
_FRAMES = 1_000


class Wire:
    """A client's connection to node `node`. `rules` may change between two frames."""

    def __init__(self, node: int, rules: list[Rule], client: Stream, broker: Stream) -> None:
        self.node = node
        self.last: Request | None = None
        """The newest request, which tells whose connection this is."""
        self._rules = rules
        self._client_reader, self._client = client
        self._broker_reader, self._broker = broker
        self._unanswered: dict[int, Request] = {}
        self._answered = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Forward frames until either side ends; closes both."""
        up, down = Frames(_FRAMES), Frames(_FRAMES)
        readers = [_read(self._client_reader, up), _read(self._broker_reader, down)]
        writers = [asyncio.create_task(self._pass_up(up)), asyncio.create_task(self._pass_down(down))]
        self._tasks = [*writers, *map(asyncio.create_task, readers)]
        try:
            await asyncio.wait(writers, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in self._tasks:
                task.cancel()
            self._client.transport.abort()
            self._broker.close()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def hang_up(self) -> None:
        """Close the client's side at once; what the client has sent still reaches the broker."""
        self._client.transport.abort()

    def cut(self) -> None:
        """Reset both sides; frames in transit are lost."""
        self._client.transport.abort()
        self._broker.transport.abort()
        for task in self._tasks:
            task.cancel()

    async def _pass_up(self, frames: Frames) -> None:
        while came := await frames.get():
            arrived_s, frame = came
            self.last = request = request_of(frame, self.node)
            verdict = await self._verdict_on(request, arrived_s)
            if verdict is Verdict.CUT:
                self.cut()
                return
            if verdict is Verdict.PASS:
                self._unanswered[request.correlation_id] = request
                self._broker.write(frame)
                await self._broker.drain()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_answered(), ANSWER_S)

    async def _verdict_on(self, request: Request, arrived_s: float) -> Verdict:
        for rule in [rule for rule in self._rules if rule.match.takes(request)]:
            verdict = await rule.request(self, request, arrived_s)
            if verdict is not Verdict.PASS:
                return verdict
        return Verdict.PASS

    async def _pass_down(self, frames: Frames) -> None:
        while came := await frames.get():
            arrived_s, frame = came
            request = self._unanswered.pop(correlation_id_of(frame), None)
            passed = frame if request is None else await self._passed_down(request, frame, arrived_s)
            if not self._unanswered:
                self._answered.set()
            if passed is not None and not self._client.is_closing():
                self._client.write(passed)
                with suppress(OSError):  # the client has gone; keep reading from the broker
                    await self._client.drain()

    async def _passed_down(self, request: Request, frame: bytes, arrived_s: float) -> bytes | None:
        """The reply after all rules; None if one of them drops it."""
        for rule in [rule for rule in self._rules if rule.match.takes(request)]:
            if await rule.reply(request, arrived_s) is not Verdict.PASS:
                return None
            frame = rule.altered(request, frame)
        return frame

    async def _all_answered(self) -> None:
        while self._unanswered:
            self._answered.clear()
            await self._answered.wait()


async def _read(reader: asyncio.StreamReader, frames: Frames) -> None:
    with suppress(asyncio.IncompleteReadError, OSError):
        while True:
            frame = await read_frame(reader)
            await frames.put((time.monotonic(), frame))
    await frames.put(None)
