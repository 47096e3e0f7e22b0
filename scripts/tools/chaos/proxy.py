"""A TCP proxy between workers and brokers that understands as much of Kafka's protocol as the faults need.

    with Proxy(nodes=3) as proxy, Cluster(nodes=3, listeners={"PROXIED": "PLAINTEXT"},
                                          advertised={"PROXIED": proxy.ports}) as cluster:
        proxy.pass_on_to(cluster.ports_of("PROXIED"))
        proxy.apply(hold := Hold(Match({Api.END_TXN}), hang_up=True))

Runs in one thread; its methods may be called from any other. `rules` says what happens to frames, `wire` moves them.
"""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING

from tools.chaos.wire import Wire
from tools.waiting import Closing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tools.chaos.rules import Rule

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
