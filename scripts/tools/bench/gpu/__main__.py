"""The command: `measure` compares the legs on this machine's GPU, `prepare` times the building of graphs (without a GPU)."""

from __future__ import annotations

import logging
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import onnxruntime as ort
import typer
from rich.console import Console

from enricher.inference.checkpoint.folder import Checkpoint
from enricher.inference.device.cuda import cuda_problem
from tools.bench.gpu import pytorch
from tools.bench.gpu.cases import Case, cases
from tools.bench.gpu.checkpoints import SHAPES, write_checkpoint
from tools.bench.gpu.kernels import kernels_of
from tools.bench.gpu.legs import Leg, packed_leg, stock_leg
from tools.bench.gpu.measure import Figure, Plan, measure
from tools.bench.gpu.peak import matrix_peak_tflops
from tools.bench.gpu.preparing import VARIANTS, prepare_apart
from tools.bench.gpu.report import Report

app = typer.Typer(add_completion=False, help=__doc__)
say = Console(stderr=True).print


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    shapes: tuple[str, ...]
    batch_tokens: tuple[int, ...]
    concurrency: tuple[int, ...]
    windows: int
    passes: int
    peak_width: int


GPU = Scale(("xlm-r-large", "bert-base"), (2048, 4096, 8192, 16384, 32768), (1, 2), 2048, 5, 8192)
DRY = Scale(("tiny",), (512, 1024), (1, 2), 12, 1, 64)


@app.command("measure")
def measure_all(
    *,
    dry_run: Annotated[
        bool, typer.Option(help="Run every part with tiny shapes on the CPU, to find mistakes.")
    ] = False,
    shape: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(SHAPES)}; may be repeated.")] = None,
    windows: Annotated[int | None, typer.Option(min=1, help="Windows per case.")] = None,
    out: Annotated[Path, typer.Option(help="Where gpu-benchmark.json and .md are written.")] = Path(),
) -> None:
    """Packed fp16 against padded fp16 and PyTorch: windows/s, share of the device's measured peak, attention kernels.

    Takes minutes per shape. Exit code 1 if our variant ran unfused attention, or no kernel was named.
    """
    logging.basicConfig(level=logging.ERROR)
    scale = DRY if dry_run else GPU
    problem = None if dry_run else cuda_problem()
    if problem is not None:
        say(f"No usable GPU: {problem}. --dry-run needs none.")
        raise typer.Exit(2)
    say("matrix-product peak")
    peak = matrix_peak_tflops(scale.peak_width, dry=dry_run)
    todo = cases(windows or scale.windows)
    figures: list[Figure] = []
    kernels = {name: _measure_shape(name, todo, scale, figures, dry=dry_run) for name in shape or scale.shapes}
    report = Report(_machine(), dry_run, peak, figures, kernels)
    out.mkdir(parents=True, exist_ok=True)
    (out / "gpu-benchmark.json").write_bytes(report.to_json())
    (out / "gpu-benchmark.md").write_text(report.to_markdown(), "utf-8")
    typer.echo(report.to_markdown())
    raise typer.Exit(int(not dry_run and not report.fused))


@app.command()
def prepare(
    shape: Annotated[str, typer.Option(help=f"One of {', '.join(SHAPES)}.")] = "xlm-r-large",
    limit_s: Annotated[float, typer.Option(help="Exit code 1 above this.")] = 120.0,
    limit_gib: Annotated[float, typer.Option(help="Exit code 1 above this.")] = 8.0,
) -> None:
    """A random float16 checkpoint -> each variant's graph, with seconds and peak memory. XLM-R-large needs 5 GB of disk."""
    within = True
    with tempfile.TemporaryDirectory() as scratch:
        say(f"writing a random {shape}")
        folder = write_checkpoint(Path(scratch) / "checkpoint", SHAPES[shape])
        for variant in VARIANTS:
            done = prepare_apart(folder, variant, Path(scratch) / "cache")
            typer.echo(f"{variant}: {done.seconds:.1f} s, peak {done.peak_gib:.2f} GiB, graph {done.graph_gib:.2f} GiB")
            within = within and done.seconds <= limit_s and done.peak_gib <= limit_gib
            shutil.rmtree(Path(scratch) / "cache")
    raise typer.Exit(int(not within))


def _measure_shape(
    name: str, todo: list[Case], scale: Scale, figures: list[Figure], *, dry: bool
) -> dict[str, dict[str, int]]:
    """Fills `figures`; returns the kernels of each leg. One leg is open at a time."""
    kernels = {}
    with tempfile.TemporaryDirectory() as scratch:
        say(f"{name}: writing random weights")
        checkpoint = Checkpoint.open(write_checkpoint(Path(scratch) / name, SHAPES[name]))
        for make in _legs(checkpoint, Path(scratch), dry=dry):
            leg = make()
            figures.extend(_measure_leg(leg, name, todo, scale))
            if leg.onnx_path is not None:
                kernels[leg.name] = _kernels(leg, todo[0], name, scale, dry=dry)
            del leg
    return kernels


def _legs(checkpoint: Checkpoint, scratch: Path, *, dry: bool) -> Iterator[Callable[[], Leg]]:
    yield partial(packed_leg, checkpoint, scratch, dry=dry)
    yield partial(stock_leg, checkpoint, scratch, dry=dry)
    if not pytorch.installed():
        say("PyTorch is not installed: its legs are skipped")
        return
    for precision, compiled in (("fp16", False), ("fp16", True), ("fp32", False), ("fp32", True)):
        if not dry or (precision, compiled) == ("fp32", False):
            yield partial(pytorch.torch_leg, checkpoint.folder, precision, compiled=compiled, dry=dry)


def _measure_leg(leg: Leg, name: str, todo: list[Case], scale: Scale) -> Iterator[Figure]:
    for case in todo:
        windows = case.windows(SHAPES[name].vocab_size)
        for batch_tokens in scale.batch_tokens:
            for concurrency in scale.concurrency if leg.threads else scale.concurrency[:1]:
                say(f"{name}, {case.name}: {leg.name}, {batch_tokens} tokens, {concurrency} at once")
                plan = Plan(batch_tokens, concurrency, scale.passes)
                yield measure(leg, windows, plan, (name, case.name), SHAPES[name])


def _kernels(leg: Leg, case: Case, name: str, scale: Scale, *, dry: bool) -> dict[str, int]:
    """The kernels of one batch. In a dry run the packed graph does not run."""
    assert leg.onnx_path is not None
    if dry and leg.name.startswith("packed"):
        return {}
    batch = leg.batching(case.windows(SHAPES[name].vocab_size), scale.batch_tokens[0])[0]
    return kernels_of(leg.onnx_path, leg.feeds(batch), dry=dry)


def _machine() -> dict[str, str]:
    found = {"machine": platform.platform(), "ONNX Runtime": ort.__version__}
    if tool := shutil.which("nvidia-smi"):
        query = [tool, "--query-gpu=name,driver_version,power.limit,clocks.max.sm", "--format=csv,noheader"]
        found["GPU"] = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    if pytorch.installed():
        found["PyTorch"] = version("torch")
    return found


if __name__ == "__main__":
    app()
