"""The command `scripts/bench gpu`, and its steps, the most important first.

Each runs in a process, so that one that fails or is late ends alone. The processes are forked from one that has everything
imported and has not touched CUDA.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import onnxruntime as ort
import orjson
import typer

from enricher.worker.inference.device.hardware import cuda_problem
from tools.bench.gpu import speed, worker_steps
from tools.bench.gpu.legs import NOT_INSTALLED, has_torch, news
from tools.bench.gpu.report import outcome
from tools.bench.gpu.rows import GpuBench, ask_gpu
from tools.bench.outcome import ROWS_FILE, print_outcome, read_rows, save_plots
from tools.bench.runs import processor

FAILED, NO_GPU = 1, 2

LEAST_S = 20.0
"""A step is skipped with less time left than this: imports, CUDA and a graph take half of it."""
GRACE_S = 10.0
"""The time for a killed process to end, which a call that hangs in the driver may prevent."""


def machine(bench: GpuBench) -> None:
    """GPU, driver, processors and versions, and whether CUDA works."""
    names = ("name", "driver_version", "memory.total", "power.limit", "clocks.max.sm")
    gpu = {} if bench.dry else dict(zip(names, ask_gpu(*names), strict=False))
    build = ort.get_build_info()[:80]
    torch = version("torch") if has_torch() else NOT_INSTALLED
    bench.add(
        system=platform.platform(), processor=processor(), **gpu, onnxruntime=ort.__version__, build=build, torch=torch
    )


@dataclass(frozen=True, slots=True)
class Step:
    """`limit_s` is four times what it should take on an H200, so that a slower GPU finishes too."""

    name: str
    run: Callable[[GpuBench], None]
    limit_s: float

    @property
    def question(self) -> str:
        """The question that it answers: the docstring of its function."""
        return " ".join((self.run.__doc__ or "").split())


STEPS = (
    Step("machine", machine, 60),
    Step("peak", speed.peak, 60),
    Step("large", speed.large, 240),
    Step("gate", worker_steps.gate, 180),
    Step("engine", worker_steps.engine, 60),
    Step("worker", worker_steps.worker, 240),
    Step("eager", speed.eager, 120),
    Step("fp32", speed.fp32, 90),
    Step("stock", speed.stock, 120),
    Step("compiled", speed.compiled, 90),
    Step("peers", worker_steps.peers, worker_steps.PEERS_S),
)
HELP = f"""Everything that is asked of the CUDA variants, the most important first, within a time. --dry needs no GPU.

A row is on disk when it is measured: a run that is killed loses nothing. Exit code 1: a step failed, was late or found
something wrong; 2: no usable GPU. The steps:

{"".join(f"{chr(10) * 2}{step.name}: {step.question}" for step in STEPS)}"""


def main(
    steps: Annotated[
        list[str] | None, typer.Argument(help="Only these; rows of the others are kept.", metavar="[STEP]...")
    ] = None,
    *,
    dry: Annotated[
        bool, typer.Option("--dry", help="Tiny shapes on the CPU: finds mistakes, measures nothing.")
    ] = False,
    minutes: Annotated[
        float, typer.Option(min=0.1, help="When to end; steps for which no time is left say so.")
    ] = 10.0,
    out: Annotated[
        Path,
        typer.Option(help=f"Folder for {ROWS_FILE}, the plot, the gate report and the sweep.", file_okay=False),
    ] = Path("gpu-bench"),
    tables_only: Annotated[
        bool,
        typer.Option("--tables", help="Run nothing: print the tables of the rows in the folder, and draw the plot."),
    ] = False,
) -> None:
    logging.basicConfig(level=logging.ERROR)
    names = [step.name for step in STEPS]
    if unknown := sorted({*(steps or [])} - {*names}):
        raise typer.BadParameter(f"{', '.join(unknown)}: the steps are {', '.join(names)}")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"--out: {error}") from error
    try:
        if not tables_only:
            _run_chosen(steps or names, GpuBench(dry, out.resolve(), Path(), time.monotonic()), minutes)
    finally:
        rows = read_rows(out)
        found = outcome(rows, {step.name: step.question for step in STEPS})
        print_outcome(found)
        save_plots(found, out)  # if all was run
    if any("no_gpu" in row for row in rows):
        raise typer.Exit(NO_GPU)
    raise typer.Exit(FAILED if any(row.get("ok") is False for row in rows) else 0)


def _run_chosen(chosen: Sequence[str], bench: GpuBench, minutes: float) -> None:
    # CUDA then counts GPUs as nvidia-smi does.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    # So that being ended from outside ends the step too, and prints the tables.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    kept = [row for row in read_rows(bench.out) if row["step"] not in chosen and bool(row.get("dry")) == bench.dry]
    (bench.out / ROWS_FILE).write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in kept))
    with tempfile.TemporaryDirectory(prefix="enricher-gpu-") as scratch:
        run_steps(replace(bench, scratch=Path(scratch)), [step for step in STEPS if step.name in chosen], minutes)


def run_steps(bench: GpuBench, steps: Sequence[Step], minutes: float) -> None:
    """Run them one after the other until the time is over; what is left out gets a row that says so."""
    news(1)  # reads the sample articles, once for all processes
    for step in steps:
        own = replace(bench, step=step.name)
        left_s = minutes * 60 - (time.monotonic() - bench.began_s)
        if left_s < LEAST_S and not bench.dry:
            own.add(skipped="no time left")
            continue
        _run_apart(own, step, min(step.limit_s, left_s))
        if step.name == "machine" and any("no_gpu" in row for row in read_rows(bench.out)):
            return


def _run_apart(bench: GpuBench, step: Step, limit_s: float) -> None:
    began_s = time.monotonic()
    child = multiprocessing.get_context("fork").Process(target=_run, args=(bench, step))
    child.start()
    try:
        child.join(limit_s)
        if child.is_alive():
            bench.add(late=f"ended after {limit_s:.0f} s", ok=False)
        elif child.exitcode:
            how = signal.Signals(-child.exitcode).name if child.exitcode < 0 else f"exit code {child.exitcode}"
            bench.add(failed=f"the process ended with {how}", ok=False)
    finally:
        _end(child)
    print(f"        {step.name} took {time.monotonic() - began_s:.1f} s", file=sys.stderr, flush=True)


def _end(child: multiprocessing.process.BaseProcess) -> None:
    """Kill the process with its own children."""
    assert child.pid is not None, "it was started"
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    child.join(GRACE_S)


def _run(bench: GpuBench, step: Step) -> None:
    """Run the step; the child calls it."""
    os.setsid()
    try:
        if not bench.dry and (problem := cuda_problem()):
            return bench.add(no_gpu=problem, ok=False)
        step.run(bench)
    except Exception as error:  # noqa: BLE001  the next step may still answer its question
        bench.add(failed=f"{type(error).__name__}: {error}"[:2000], ok=False)
    return None
