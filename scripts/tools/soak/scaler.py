"""`scripts/soak --hostile`: attacks on the scaler's port, with its peak memory and how many probes it answered meanwhile.

As a program (`python -m tools.soak.scaler KIND PORT`) it is the attacker, who needs a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from enricher.operate.scaling.service import SERVICE
from tools import enricher_command, markdown

LIMIT_BYTES = 256 * 2**20
"""The chart's limit for the scaler's pod."""
PROBES, PROBE_S = 20, 1.0
"""How often the health check is asked during an attack, and how long it may take: Kubernetes' default."""
_CHANNELS, _CALLS = 20, 50
"""Connections of the attacker, and the calls that it keeps open on each."""
_ATTACK_S, _FIRST_PROBE_S = 14.0, 2.0
_METRICS, _HEALTH = f"/{SERVICE}/GetMetrics", "/grpc.health.v1.Health/Check"
_PRIVATE = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
"""Options of channels that share no connection."""


@dataclass(frozen=True, slots=True)
class ScalerRow:
    """The result of one attack on the port."""

    attack: str
    what: str
    answered: int
    peak_bytes: int
    exit_code: int

    @property
    def holds(self) -> bool:
        """Whether every probe was answered, within the pod's memory, and the scaler ended when it was told to."""
        return self.answered == PROBES and self.peak_bytes <= LIMIT_BYTES and self.exit_code == 0


class _Unsent:
    """The messages of a call that never sends one."""

    def __iter__(self) -> _Unsent:
        return self

    def __next__(self) -> bytes:
        threading.Event().wait()
        raise StopIteration


def _messages(channel: Any) -> Any:  # noqa: ANN401  gRPC has no types
    return channel.unary_unary(_METRICS).future(bytes(4_000_000))


def _calls(channel: Any) -> Any:  # noqa: ANN401  as above
    return channel.unary_unary(_METRICS).future(b"")


def _begun(channel: Any) -> Any:  # noqa: ANN401  as above
    return channel.stream_unary(_METRICS).future(_Unsent())


def _begun_probes(channel: Any) -> Any:  # noqa: ANN401  as above
    return channel.stream_unary(_HEALTH).future(_Unsent())


def _streams(channel: Any) -> Any:  # noqa: ANN401  as above
    return channel.unary_stream(f"/{SERVICE}/StreamIsActive")(b"")


KINDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "messages": ("20 connections with 50 calls each of 4 MB", _messages),
    "calls": ("20 connections with 50 small calls each", _calls),
    "begun": ("20 connections with 50 calls each that send no message", _begun),
    "begun-probes": ("20 connections with 50 health checks each that send no message", _begun_probes),
    "streams": ("20 connections with 50 streams each", _streams),
}
"""Attacks on the scaler by name; each call that ends is made again at once."""


def run(names: Sequence[str], environment: dict[str, str], say: Callable[[str], None]) -> Iterator[ScalerRow]:
    """Run the attacks with these names, or all, against a scaler each. `environment`: its brokers, topic and group."""
    for kind, (what, _) in KINDS.items():
        name = f"scaler-{kind}"
        if not names or name in names:
            row = _measure(name, kind, what, environment)
            say(f"{name}: {row.peak_bytes / 1e6:.0f} MB, {row.answered} of {PROBES} probes answered")
            yield row


def table(rows: Sequence[ScalerRow]) -> str:
    cells = [
        [
            row.what,
            f"{row.answered} of {PROBES}",
            f"{row.peak_bytes / 1e6:,.0f}",
            "yes" if row.holds else f"no (exit code {row.exit_code})",
        ]
        for row in rows
    ]
    return "\n".join(
        markdown.table(("attack on the scaler's port", "probes answered", "peak memory, MB", "holds"), cells)
    )


def _measure(name: str, kind: str, what: str, environment: dict[str, str]) -> ScalerRow:
    from tools.soak.hostile import peak_bytes  # noqa: PLC0415  which imports this module

    with enricher_command.start("scaler", "--port", "0", variables=environment, stderr=subprocess.PIPE) as scaler:
        assert scaler.stderr is not None
        port = int(next(line for line in scaler.stderr if b"answering KEDA on" in line).rpartition(b":")[2])
        threading.Thread(target=lambda errors: [None for _ in errors], args=(scaler.stderr,), daemon=True).start()
        attacker = subprocess.Popen([sys.executable, "-m", "tools.soak.scaler", kind, str(port)])
        try:
            time.sleep(_FIRST_PROBE_S)
            answered = sum(_is_answered(port) for _ in range(PROBES))
            attacker.wait()
            peak = peak_bytes(scaler.pid)
        finally:
            attacker.kill()
            scaler.terminate()
        return ScalerRow(name, what, answered, peak, scaler.wait(60))


def _is_answered(port: int) -> bool:
    """Whether a probe, which has a connection of its own, is answered in time. Takes half a second or more."""
    began_s = time.monotonic()
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=_PRIVATE) as channel:
        check = channel.unary_unary(
            _HEALTH, request_serializer=StringValue.SerializeToString, response_deserializer=Int32Value.FromString
        )
        try:
            serving = bool(check(StringValue(), timeout=PROBE_S).value == 1)
        except grpc.RpcError:
            serving = False
    time.sleep(max(0.0, 0.5 - (time.monotonic() - began_s)))
    return serving


def attack(kind: str, port: int) -> None:
    """Attack a port for `_ATTACK_S`, then end the process with all its calls."""
    make = KINDS[kind][1]
    for _ in range(_CHANNELS):
        channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=_PRIVATE)
        threading.Thread(target=_keep_open, args=(make, channel), daemon=True).start()
    time.sleep(_ATTACK_S)
    os._exit(0)  # threads of unsent messages wait for ever


def _keep_open(make: Callable[[Any], Any], channel: Any) -> None:  # noqa: ANN401  gRPC has no types
    places = threading.Semaphore(_CALLS)
    while True:
        places.acquire()
        make(channel).add_done_callback(lambda _call: places.release())


if __name__ == "__main__":
    attack(sys.argv[1], int(sys.argv[2]))
