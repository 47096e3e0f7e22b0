"""Records that are small in the topic and large in memory: the worker stays within its memory, and others go on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Producer
from health.looking import get
from kafka.harness import as_sent, headers_of, source_of, worker
from support.patience import PATIENCE_S
from support.reading import committed_and_ends, read_all
from support.topics import Topics

from tools.ports import free_ports

pytestmark = pytest.mark.broker

PEAK_MB = 720
"""The limit of a worker with a stub for the model. One that kept all headers would take 920 MB."""
GOOD = as_sent({"id": "good", "body": "Angela Merkel met Emmanuel Macron in Paris."})
GOOD_ONES = 25
"""In each partition, in one of them behind dense articles."""
LIMIT_S = 240.0
"""Against hanging; not a claim about speed."""
MANY = 95_000
NESTED = b'{"id":"a","body":"x","o":[' + (b"[" * 1_000 + b"]" * 1_000 + b",") * 20_000 + b"0]}"
"""40 MB, 0.15 s for each to parse."""
DENSE = {
    "marks": "!" * 1_000_000,
    "Chinese": "中文東京" * 250_000,
    "one word": "a" * 1_000_000,
    "apart": "a b " * 250_000,
}


@dataclass(slots=True)
class Run:
    """A worker as seen from outside."""

    peak_mb: float = 0.0
    probes: Counter[int] = field(default_factory=Counter)
    """Answers of `/livez` by status; 0 for no answer, as while it starts or ends."""


def put(topics: Topics, records: Iterable[tuple[int, bytes | None, int]]) -> int:
    """Write compressed values with so many headers to partitions; returns how many."""
    producer = Producer({
        "bootstrap.servers": topics.bootstrap_servers, "compression.type": "zstd", "message.max.bytes": 100_000_000,
        "linger.ms": 50, "log_level": 0,
    })  # fmt: skip
    failed: list[object] = []
    count = 0
    for partition, value, headers in records:
        count += 1
        producer.produce(
            topics.input, value, b"k", partition=partition, headers=[("a", b"")] * headers,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )  # fmt: skip
        producer.flush(PATIENCE_S) if len(value or b"") > 1_000_000 else producer.poll(0)
    assert (producer.flush(PATIENCE_S), failed) == (0, [])
    return count


def run(topics: Topics, log: Path, until: Callable[[], bool] = lambda: False, *, stub: bool = True) -> Run:
    """Run a worker in its own process until it has caught up, or until `until`."""
    [port] = free_ports(1)
    seen, give_up_s = Run(), time.monotonic() + LIMIT_S
    environment = topics.environment | {"ENRICHER_HEALTH__PROBE_PORT": str(port)}
    with worker(environment, "--until-caught-up", log=log, stub=stub) as process:
        while process.poll() is None and not until():
            assert time.monotonic() < give_up_s
            seen.peak_mb = max(seen.peak_mb, peak_mb_of(process.pid))
            seen.probes[alive(port)] += 1
            time.sleep(0.1)
        assert process.poll() in {None, 0}, log.read_text("utf-8")[-3_000:]
    assert seen.probes.keys() <= {0, 200}
    return seen


def peak_mb_of(pid: int) -> float:
    """The peak resident memory of a process, as Linux counts it; 0 if it has just ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1_000 for line in lines if line.startswith("VmHWM")), 0.0)


def alive(port: int) -> int:
    """What `/livez` answers; 0 for nothing."""
    try:
        return get(port, "/livez").status
    except OSError:
        return 0


def outcomes(topics: Topics) -> Counter[str]:
    """The outputs by what they are: `record`, or the beginning of a dead letter's reason. Each input has one."""
    messages = [m for topic in (topics.output, topics.dead_letters) for m in read_all(topics.bootstrap_servers, topic)]
    assert len({source_of(message) for message in messages}) == len(messages)
    reasons = [headers_of(message).get("enricher.dlq.error.message") for message in messages]
    return Counter("record" if reason is None else " ".join(reason.decode().split()[:3]) for reason in reasons)


def test_headers_that_are_small_in_the_topic_are_not_kept(topics: Topics, tmp_path: Path) -> None:
    """95,000 headers in each record: the worker's memory is bounded, the reason says how many, neighbours are enriched."""
    records: Sequence[tuple[int, bytes | None, int]] = [
        *[(0, GOOD.value, MANY)] * 80, (0, GOOD.value, 300), (0, GOOD.value, 301), (0, None, MANY), (1, GOOD.value, 0),
    ]  # fmt: skip
    count = put(topics, records)
    seen = run(topics, tmp_path / "log")
    assert outcomes(topics) == {"95000 headers are": 80, "301 headers are": 1, "record": 3}
    assert count == 84
    assert seen.peak_mb < PEAK_MB


def test_slow_values_are_refused_before_they_are_parsed(topics: Topics, tmp_path: Path) -> None:
    """Values of 40 MB of nested arrays would block the loop, take gigabytes, and do so again after each restart."""
    values = [NESTED, GOOD.value, NESTED[: NESTED.index(b"],", 4_000_000) + 2] + b"0]}"]
    put(topics, [*[(0, value, 0) for value in values] * 4, *[(1, GOOD.value, 0)] * 50])
    seen = run(topics, tmp_path / "log")
    assert outcomes(topics) == {f"value has {len(NESTED)}": 4, "record": 58}
    assert seen.peak_mb < PEAK_MB


def test_others_go_on_while_dense_articles_are_under_way(topics: Topics, tmp_path: Path) -> None:
    """A megabyte of marks, of Chinese, of one word: other partitions are done long before, and the probes stay green."""
    for text in [*DENSE.values()] * 3:
        put(topics, [(0, orjson.dumps({"id": "dense", "body": text}), 0)])
    put(topics, [(number, GOOD.value, 0) for number in (0, 1, 2, 3) for _ in range(GOOD_ONES)])

    def places() -> dict[int, tuple[int, int]]:
        return committed_and_ends(topics.bootstrap_servers, topics.group, topics.input)

    def others_are_done() -> bool:
        return all(committed == end for partition, (committed, end) in places().items() if partition)

    seen = run(topics, tmp_path / "log", until=others_are_done, stub=False)
    assert others_are_done()
    committed, end = places()[0]
    assert committed < end - GOOD_ONES, "dense ones are still to be done"
    assert seen.peak_mb < PEAK_MB
