"""The steps that run the worker: its engine and commands, the worker by processes of one group, and beside other workers.

The last two need a broker, which Java runs here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import orjson
import psutil
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from enricher.worker.commands.running import repeating
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.graph.padded import PackedFloat32
from enricher.worker.inference.run.engine import OnnxEngine
from enricher.worker.inference.run.model import open_model
from enricher.worker.records import Batch
from tools import enricher_command
from tools.bench.bench import PARTITIONS, Bench
from tools.bench.gpu.checkpoints import SHAPES, write_labelled
from tools.bench.gpu.legs import PACKED_FP16, Case, timed
from tools.bench.gpu.rows import GpuBench, ask_gpu, model_source
from tools.bench.legs.peers import Plan, compare
from tools.bench.load import articles
from tools.bench.peers.line_up import on_a_gpu
from tools.bench.peers.results import OURS, RANDOM
from tools.waiting import cpu_s, wait_until

THREADS = (1, 2, 4)
BATCHES = ((256, 32), (32, 256), (256, 128))
"""Tokens of a window, windows of a batch: two of 8,192 tokens, one of 32,768."""
RUNS_OF_A_PASS = 8
"""Runs of each thread."""
COMMAND_S = 120.0
SAID_CHARS = 600
_GOLD_ENTITIES = 334
"""The fewest that the gate accepts with its default limit."""


def engine(bench: GpuBench) -> None:
    """The worker's model through its engine: 1, 2 and 4 threads, which leave their core while they wait."""
    checkpoint = open_model(model_source())
    for threads in THREADS[:1] if bench.dry else THREADS:
        opened = _open(bench, checkpoint, threads)
        for length, count in ((32, 4),) if bench.dry else BATCHES:
            batches = [_batch(checkpoint, length, count)] * threads * (1 if bench.dry else RUNS_OF_A_PASS)
            timing = timed(opened.run, batches, threads, bench.seconds(1.0))
            bench.add(
                threads=threads,
                window_tokens=length,
                windows=count,
                tokens_per_s=len(batches) * length * count / timing.median_s,
                ms_of_a_run=1e3 * timing.median_s * threads / len(batches),
                cores=timing.cores,
            )


def gate(bench: GpuBench) -> None:
    """The worker's own commands: the report that lets fp16 serve its model, and the sweep of batch sizes."""
    device = ["--device", "cpu" if bench.dry else "cuda"]
    gold = ["--gold", str(_small_gold(bench.scratch))] if bench.dry else []
    check = ["check", model_source(), *device, "--precision", "bf16" if bench.dry else "fp16", *gold]
    quickly = ["--batch-tokens", "64", "--concurrency", "1"] if bench.dry else []
    rounds = ["--seconds", "0" if bench.dry else "0.2", "--rounds", "1" if bench.dry else "2", "--json"]
    tune = ["tune", model_source(), *device, "--precision", "fp32" if bench.dry else "fp16", *quickly, *rounds]
    for command in (check, tune):
        began_s = time.monotonic()
        done, said = run_command(["model", *command], {"ENRICHER_MODEL__CACHE_DIR": str(bench.cache_dir)})
        # A dry run's sentences need not pass.
        passed = done.returncode == 0 or (bench.dry and command is check and done.returncode == 3)
        seconds = time.monotonic() - began_s
        bench.add(command=command[0], exit=done.returncode, seconds=seconds, said=said, ok=passed)
        if command is tune:
            (bench.out / "tune.json").write_text(done.stdout, encoding="utf-8")
    for path in bench.cache_dir.rglob("gate-*"):
        shutil.copy(path, bench.out)
        bench.add(written=path.name)


def run_command(arguments: Sequence[str], variables: Mapping[str, str]) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run a command of the worker; what it said last, if it failed, comes with it. Raises subprocess.TimeoutExpired."""
    done = enricher_command.answer_of(*arguments, variables=variables, timeout_s=COMMAND_S)
    return done, (done.stdout + done.stderr)[-SAID_CHARS:] if done.returncode else ""


def _open(bench: GpuBench, checkpoint: Checkpoint, threads: int) -> OnnxEngine:
    model = bench.graph(checkpoint, PackedFloat32() if bench.dry else PACKED_FP16)
    return OnnxEngine(model, threads_per_run=1, pad_id=0, concurrency=threads)


def _batch(checkpoint: Checkpoint, length: int, count: int) -> Batch:
    vocabulary = getattr(checkpoint.config, "vocab_size", None)
    return Batch(tuple(Case("", (length,) * count).windows(vocabulary or 1000)))


def _small_gold(folder: Path) -> Path:
    """One sentence as often as the gate wants entities, for a dry run."""
    path = folder / "gold.jsonl"
    entities = [{"start": 8, "end": 14, "label": "LOC"}]
    lines = [{"id": str(number), "text": "Rain in Berlin.", "entities": entities} for number in range(_GOLD_ENTITIES)]
    path.write_bytes(b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines))
    return path


SIZES = (1, 4, 8)
"""Processes of a group. They share the GPU; beside an H100 one kept four cores busy."""
PROBE, BURST_S = 1000, 6.0
"""Articles of each process that warm up and tell its rate, and how long a burst should take."""
RECOMPUTED = 200
SAMPLE_S = 0.5


def worker(bench: GpuBench) -> None:
    """The worker, Kafka to Kafka and exactly once, with 1, 4 and 8 processes, and what `enricher verify` says."""
    with _kafka_bench(bench) as kafka:
        for size in SIZES[:1] if bench.dry else SIZES:
            with ExitStack() as closing:
                crew = Crew(kafka, closing, size)
                crew.ready()
                _burst(bench, crew, size)
                _verify(bench, crew)


def _burst(bench: GpuBench, crew: Crew, size: int) -> None:
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


def _verify(bench: GpuBench, crew: Crew) -> None:
    """Every article once, and some records computed again."""
    recompute = ["--recompute", str(bench.count(RECOMPUTED))]
    done, said = run_command(["verify", "--json", *recompute], crew.topics.variables())
    checks = orjson.loads(done.stdout)["checks"] if done.returncode in {0, 8} else []
    failed = [str(check) for check in checks if check["state"] == "failed"]
    bench.add(command="verify", exit=done.returncode, failed_checks=failed, said=said, ok=done.returncode == 0)


@contextlib.contextmanager
def _kafka_bench(bench: GpuBench) -> Iterator[Bench]:
    """A broker, and settings for this device: those of this process and of the workers that it starts."""
    os.environ |= {
        "ENRICHER_MODEL__DEVICE": "cpu" if bench.dry else "cuda",
        "ENRICHER_MODEL__PRECISION": "fp32" if bench.dry else "auto",
        "ENRICHER_MODEL__CACHE_DIR": str(bench.cache_dir),
    }
    with ExitStack() as closing:
        yield Bench(1, bench.dry, lambda text: print(f"{bench.step}: {text}", file=sys.stderr), closing)


PEERS_S = 240.0
FIRST_SHARE = 0.4
"""The share of the first model; the second is larger and takes longer to export and to compile."""
GRACE_S = 10.0
"""What is left for the turn in progress."""
TURNS = 5


def peers(bench: GpuBench) -> None:
    """The worker in fp16, Kafka to Kafka, beside its bare engine and workers that a team would write, with two models."""
    ends_s = time.monotonic() + PEERS_S - GRACE_S
    device, variant = ("cpu", PackedFloat32()) if bench.dry else ("cuda:0", PACKED_FP16)
    turns = 1 if bench.dry else TURNS
    plan = Plan(on_a_gpu(device, dry=bench.dry), ("news",), turns, dry=bench.dry, with_bare_engine=True, ends_s=ends_s)
    with _kafka_bench(bench) as kafka:
        kafka.say(
            f"plan: {plan.left_s:.0f} s for {'a tiny model' if bench.dry else 'the model of the worker, then 24 x 1,024'}; "
            f"each contender loads and warms up, tries its options and does up to {TURNS} turns of at least 5 s"
        )
        if bench.dry:
            kafka.say("float32 and one block a turn: a CPU has no float16, and these figures mean nothing")
        else:
            first = replace(plan, ends_s=ends_s - (1 - FIRST_SHARE) * plan.left_s)
            for row in compare(kafka, {OURS: kafka.model_of(open_model(model_source()), variant)}, first):
                bench.add(**row)
        shape = "tiny" if bench.dry else "bert-large"
        source = open_model(model_source()).folder
        folder = write_labelled(bench.scratch / f"{RANDOM}{shape}", SHAPES[shape], source)
        for row in compare(kafka, {OURS: kafka.model_of(open_model(folder), variant)}, plan):
            bench.add(**row)


# ---- several processes


_READY_S = 120.0
_ASK_S = 0.02
"""A burst takes seconds, so that its end is known well enough."""


@dataclass(frozen=True, slots=True)
class Burst:
    """The cost of a burst; `seconds` from the first article published to the last one committed."""

    articles: int
    seconds: float
    worker_cpu_s: float
    broker_cpu_s: float


class Crew:
    """`size` processes with topics of their own; `ready` waits until the group is stable."""

    def __init__(self, bench: Bench, closing: ExitStack, size: int) -> None:
        self.topics = closing.enter_context(bench.topics())
        self._bench = bench
        self._size = size
        servers = self.topics.bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        # It asks for the group's offsets, and never joins.
        group = Consumer({"bootstrap.servers": servers, "log_level": 0, "group.id": self.topics.group})
        self._group = closing.enter_context(contextlib.closing(group))
        run = ("run", "--quiet", "--processes", str(size))
        self._parent = closing.enter_context(enricher_command.running(*run, variables=self.topics.variables()))

    def ready(self) -> None:
        """Wait until the group is stable and partitions are evenly assigned.

        Raises TimeoutError, and RuntimeError if a worker ends, which ends all.
        """
        if not wait_until(self._even, _READY_S, _ASK_S):
            raise TimeoutError(f"partitions by worker after {_READY_S:g} s: {self._shares()}")

    def burst(self, values: Sequence[bytes]) -> Burst:
        """Publish evenly to all partitions and wait until all is committed. Raises TimeoutError."""
        committed, worker_cpu_s = self._committed(), self._cpu_s()
        meter, began_s = self._bench.meter(), time.monotonic()
        self._bench.publish(self.topics, values, evenly=True)
        if not wait_until(lambda: self._committed() >= committed + len(values), _READY_S, _ASK_S):
            raise TimeoutError(f"{self._committed() - committed} of {len(values)} articles in {_READY_S:g} s")
        seconds, load = time.monotonic() - began_s, meter.read()
        return Burst(len(values), seconds, self._cpu_s() - worker_cpu_s, load.broker_cores * load.seconds)

    def _committed(self) -> int:
        """The group's progress in articles: the publisher writes no transactions, so each article is one offset."""
        partitions = [TopicPartition(self.topics.input, number) for number in range(PARTITIONS)]
        return sum(max(0, each.offset) for each in self._group.committed(partitions, timeout=_READY_S))

    def _cpu_s(self) -> float:
        children = psutil.Process(self._parent.pid).children(recursive=True)
        return sum(map(cpu_s, (self._parent.pid, *(child.pid for child in children))))

    def _even(self) -> bool:
        if (code := self._parent.poll()) is not None:
            raise RuntimeError(f"the workers ended with code {code}; see their messages above")
        shares = self._shares()
        return len(shares) == self._size and sum(shares) == PARTITIONS and max(shares) - min(shares) <= 1

    def _shares(self) -> list[int]:
        """Number of partitions of each member; empty while the group rebalances."""
        try:
            group = self._admin.describe_consumer_groups([self.topics.group])[self.topics.group].result(_READY_S)
        except KafkaException:
            return []  # the group does not exist until a member has joined
        if group.state.name != "STABLE":
            return []
        return [len(member.assignment.topic_partitions) for member in group.members]
