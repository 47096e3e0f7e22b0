"""The steps that run the worker's own engine and commands."""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import orjson

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.graph.padded import PackedFloat32
from enricher.worker.inference.run.engine import OnnxEngine
from enricher.worker.inference.run.model import open_model
from enricher.worker.records import Batch
from tools import enricher_command
from tools.bench.gpu.legs import PACKED_FP16, Case, timed
from tools.bench.gpu.rows import GpuBench, model_source

THREADS = (1, 2, 4)
BATCHES = ((256, 32), (32, 256), (256, 128))
"""Tokens of a window, windows of a batch: two of 8,192 tokens, one of 32,768."""
RUNS_OF_A_PASS = 8
"""Runs of each thread."""
LEFT_GIB = 6
"""Enough for XLM-R-large and batches of about 65,536 tokens."""
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


def memory(bench: GpuBench) -> None:
    """XLM-R-large with 6 GiB left: a batch that does not fit must run in halves, and so must the next."""
    checkpoint = bench.checkpoint(bench.shape("xlm-r-large"))
    if bench.dry:
        return _batches_too_large(bench, checkpoint, (4, 8, 8, 4))
    with memory_held(LEFT_GIB * 2**30) as held:
        bench.add(held_gib=held / 2**30)
        _batches_too_large(bench, checkpoint, (4, 2048, 2048, 4))
    return None


def _batches_too_large(bench: GpuBench, checkpoint: Checkpoint, counts: tuple[int, ...]) -> None:
    engine = _open(bench, checkpoint, 2)
    for count in counts:
        began_s = time.monotonic()
        result = engine.run(_batch(checkpoint, 256, count))
        bench.add(
            windows=count,
            failures=len(result.failures),
            fits_tokens=result.fits_tokens,
            seconds=time.monotonic() - began_s,
            first=result.failures[0].message if result.failures else "",
            ok=not result.failures,
        )


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


# ---- memory


@contextlib.contextmanager
def memory_held(leave_bytes: int) -> Iterator[int]:
    """Allocate all of the first GPU's memory but `leave_bytes`, by its driver: nobody else gets it. Yields the bytes."""
    driver, context, free, total, pointer = open_driver(), ctypes.c_void_p(), *(ctypes.c_size_t() for _ in range(3))
    check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
    check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    check(driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "cuMemGetInfo")
    held = max(0, free.value - leave_bytes)
    if held:
        check(driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(held)), "cuMemAlloc")
    try:
        yield held
    finally:
        driver.cuMemFree_v2(pointer)
        driver.cuDevicePrimaryCtxRelease_v2(0)


def open_driver() -> ctypes.CDLL:
    """NVIDIA's driver, ready for calls. Raises OSError."""
    driver = ctypes.CDLL("libcuda.so.1")
    check(driver.cuInit(0), "cuInit")
    return driver


def check(result: int, call: str) -> None:
    """Raise OSError unless the call succeeded."""
    if result != 0:
        raise OSError(f"{call} answered {result}")
