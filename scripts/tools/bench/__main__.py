"""Runs the benchmark legs one after the other, prints their tables, and writes PNG and JSON."""

from __future__ import annotations

import importlib
import logging
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from enricher.errors import ModelError
from enricher.worker.inference.device.hardware import resolve_device
from enricher.worker.settings import load_settings
from tools.bench.bench import Bench
from tools.bench.outcome import Outcome, print_outcome, save_plots, write_figures
from tools.bench.runs import describe

LEGS = ("limit", "latency", "peers")
"""Modules of `tools.bench.legs` in the order of the output. Each has `ABOUT` and `measure(bench) -> Outcome`."""

COMMANDS = {
    "families": "tools.bench.families",
    "fill": "tools.bench.fill",
    "gpu": "tools.bench.gpu.steps",
    "carry": "tools.bench.gpu.carry",
}
"""Commands that are no legs: modules, imported when asked for, with `main`, and with `HELP` unless its docstring is that."""


def app_of(command: str = "") -> typer.Typer:
    """The command line of one of `COMMANDS`; of the legs without a name."""
    module = importlib.import_module(COMMANDS[command]) if command else None
    app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})
    app.command(help=getattr(module, "HELP", None))(module.main if module else main)
    return app


def main(
    legs: Annotated[list[str] | None, typer.Argument(help=f"Legs to run, of {', '.join(LEGS)}; default: all.")] = None,
    repetitions: Annotated[int, typer.Option(min=1, help="How often each contender runs; contenders take turns.")] = 5,
    out: Annotated[Path | None, typer.Option(help="Folder for one JSON file per leg, and the plots as PNG.")] = None,
    *,
    device: Annotated[
        Literal["cpu", "cuda"] | None,
        typer.Option(help="Where the model runs; default: as the settings of the worker say."),
    ] = None,
    catalogue: Annotated[
        int,
        typer.Option(
            help="Names of a made catalogue; the leg `limit` then also compares the worker with and without it."
        ),
    ] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny runs that only show that everything works.")] = False,
) -> None:
    """Measure the worker, Kafka to Kafka, against its own model and against what a team would write instead.

    The leg `peers` has ONNX Runtime in process and behind FastAPI, DJL with ONNX Runtime on the JVM, and on PyTorch,
    if BENCH_TORCH_PYTHON names a Python that has it, the Hugging Face pipeline and torch.compile. On a GPU it
    is the step of `scripts/bench gpu`, in fp16 and with two models, and takes at most four minutes.

    On a GPU: `scripts/bench gpu --help`.
    """
    logging.basicConfig(level=logging.ERROR)
    chosen = legs or list(LEGS)
    if unknown := sorted(set(chosen) - set(LEGS)):
        raise typer.BadParameter(f"{', '.join(unknown)}: the legs are {', '.join(LEGS)}")
    if device:
        os.environ["ENRICHER_MODEL__DEVICE"] = device
    try:
        step_of_gpu = {"peers"} & {*chosen} if resolve_device(load_settings().model.device) == "cuda" else set()
    except ModelError as error:
        raise typer.BadParameter(f"--device: {error}") from error
    bench = Bench(1 if quick else repetitions, quick, print, catalogue_names=catalogue)
    outcomes = _measure_legs([name for name in LEGS if name in {*chosen} - step_of_gpu], bench)
    for outcome in outcomes.values():
        print_outcome(outcome)
    if out:
        _write(out, outcomes)
    if step_of_gpu:
        app_of("gpu")([*step_of_gpu, "--out", str(out or "gpu-bench")])


def _measure_legs(names: list[str], bench: Bench) -> dict[str, Outcome]:
    outcomes = {}
    # Plain lines instead of a spinner, whose thread would take CPU time from what is measured.
    console = Console(stderr=True, highlight=False)
    with bench.closing:
        for name in names:
            module = importlib.import_module(f"tools.bench.legs.{name}")
            bench.say = lambda text, name=name: console.print(f"{name}: {text}")  # type: ignore[misc]
            bench.say(module.ABOUT)
            outcomes[name] = module.measure(bench)
    return outcomes


def _write(folder: Path, outcomes: dict[str, Outcome]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    machine, command = describe(), shlex.join(["scripts/bench", *sys.argv[1:]])
    for name, outcome in outcomes.items():
        write_figures(folder / f"{name}.json", {"machine": machine, "command": command, name: outcome.figures})
        save_plots(outcome, folder)
    Console(stderr=True).print(f"written: {folder}", highlight=False)


if __name__ == "__main__":
    command = sys.argv[1] if sys.argv[1:] and sys.argv[1] in COMMANDS else ""
    app_of(command)(sys.argv[2 if command else 1 :], prog_name=f"scripts/bench {command}".strip())
