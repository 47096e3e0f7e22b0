"""A TCP proxy between workers and brokers that understands as much of Kafka's protocol as the faults need.

    with nodes_behind_a_proxy(3) as (proxy, cluster):
        proxy.apply(hold := Hold(Match({Api.END_TXN}), hang_up=True))

Runs in one thread; its methods may be called from any other. `rules` says what happens to frames. Each direction of a
connection has a reader, which records when a frame arrived, and a writer, which asks the rules and forwards in order.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from tools.chaos.rules import Request, Rule, Verdict, correlation_id_of, read_frame, request_of
from tools.kafka import Cluster
from tools.kafka.versions import DEFAULT
from tools.waiting import Closing

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
            verdict = await self._verdict_on(request, arrived_s, is_reply=False)
            if verdict is Verdict.CUT:
                self.cut()
                return
            if verdict is Verdict.PASS:
                self._unanswered[request.correlation_id] = request
                self._broker.write(frame)
                await self._broker.drain()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_answered(), ANSWER_S)

    async def _verdict_on(self, request: Request, arrived_s: float, *, is_reply: bool) -> Verdict:
        """Ask all rules, in order, about a request or its reply."""
        for rule in [rule for rule in self._rules if rule.match.takes(request)]:
            verdict = await rule.judge(self._client.transport.abort, arrived_s, is_reply=is_reply)
            if verdict is not Verdict.PASS:
                return verdict
        return Verdict.PASS

    async def _pass_down(self, frames: Frames) -> None:
        while came := await frames.get():
            arrived_s, frame = came
            request = self._unanswered.pop(correlation_id_of(frame), None)
            passes = not request or await self._verdict_on(request, arrived_s, is_reply=True) is Verdict.PASS
            if not self._unanswered:
                self._answered.set()
            if passes and not self._client.is_closing():
                self._client.write(frame)
                with suppress(OSError):  # the client has gone; keep reading from the broker
                    await self._client.drain()

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


HOST = "127.0.0.1"
_CALL_S = 60.0


class Proxy(Closing):
    """Listens on one port per node from construction; refuses connections until `pass_on_to` is called."""

    def __init__(self, nodes: int) -> None:
        self._targets: Sequence[int] = ()
        self._rules: list[Rule] = []
        self._wires: set[Wire] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self.ports: tuple[int, ...] = asyncio.run_coroutine_threadsafe(self._listen(nodes), self._loop).result(_CALL_S)

    @property
    def addresses(self) -> str:
        """Bootstrap servers for clients: `host:port,host:port`."""
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    def pass_on_to(self, ports: Sequence[int]) -> None:
        """Set the brokers' real ports, in node order."""
        self._targets = tuple(ports)

    def apply(self, rule: Rule) -> None:
        """Apply a rule. If the rule cuts connections, those that match end at once."""
        self._call(partial(self._apply, rule))

    def lift(self, *rules: Rule) -> None:
        """Remove rules and let the frames that they hold go on. A rule that is not applied is ignored."""
        self._call(partial(self._lift, rules))

    def lift_all(self) -> None:
        self._call(lambda: self._lift(tuple(self._rules)))

    def close(self) -> None:
        self._call(self._end_all)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_S)

    # ---- in the proxy's thread

    def _call(self, function: Callable[[], None]) -> None:
        """Run it in the proxy's thread and wait until it is done."""

        async def called() -> None:
            function()

        asyncio.run_coroutine_threadsafe(called(), self._loop).result(_CALL_S)

    def _apply(self, rule: Rule) -> None:
        self._rules.append(rule)
        if rule.cuts_at_once:
            for wire in list(self._wires):
                if wire.last and rule.match.takes(wire.last):
                    rule.caught.set()
                    wire.cut()

    def _lift(self, rules: Sequence[Rule]) -> None:
        for rule in rules:
            if rule in self._rules:
                self._rules.remove(rule)
            rule.lifted.set()

    def _end_all(self) -> None:
        self._targets = ()
        for wire in list(self._wires):
            wire.cut()

    async def _listen(self, nodes: int) -> tuple[int, ...]:
        servers = [await asyncio.start_server(partial(self._serve, node), HOST, 0) for node in range(nodes)]
        return tuple(server.sockets[0].getsockname()[1] for server in servers)

    async def _serve(self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            broker = await asyncio.open_connection(HOST, self._targets[node])
        except (OSError, IndexError):
            writer.transport.abort()
            return
        wire = Wire(node, self._rules, (reader, writer), broker)
        self._wires.add(wire)
        try:
            await wire.run()
        finally:
            self._wires.discard(wire)


@contextmanager
def nodes_behind_a_proxy(
    nodes: int, *, version: str = DEFAULT, properties: Mapping[str, str] | None = None
) -> Iterator[tuple[Proxy, Cluster]]:
    """A proxy, and the warm nodes that advertise the proxy to their clients."""
    with (
        Proxy(nodes=nodes) as proxy,
        Cluster(
            nodes,
            version=version,
            listeners={"PROXIED": "PLAINTEXT"},
            advertised={"PROXIED": proxy.ports},
            properties=properties,
        ) as cluster,
    ):
        proxy.pass_on_to(cluster.ports_of("PROXIED"))
        cluster.warm_up()
        yield proxy, cluster
