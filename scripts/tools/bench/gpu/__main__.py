"""The command: runs the steps, and prints the tables of their rows."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import orjson
import typer

from tools.bench.gpu.bench import ROWS_FILE, Bench, read_rows
from tools.bench.gpu.report import outcome
from tools.bench.gpu.steps import STEPS, run_steps
from tools.bench.outcome import print_outcome, save_plots

FAILED, NO_GPU = 1, 2
HELP = f"""Everything that is asked of the CUDA variants, the most important first, within a time. --dry needs no GPU.

A row is on disk when it is measured: a run that is killed loses nothing. Exit code 1: a step failed, was late or found
something wrong; 2: no usable GPU. The steps:

{"".join(f"{chr(10) * 2}{step.name}: {step.question}" for step in STEPS)}"""

app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})


@app.command(help=HELP)
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
            _run(steps or names, Bench(dry, out.resolve(), Path(), time.monotonic()), minutes)
    finally:
        rows = read_rows(out)
        found = outcome(rows)
        print_outcome(found)
        save_plots(found, out)  # if all was run
    if any("no_gpu" in row for row in rows):
        raise typer.Exit(NO_GPU)
    raise typer.Exit(FAILED if any(row.get("ok") is False for row in rows) else 0)


def _run(chosen: list[str], bench: Bench, minutes: float) -> None:
    # CUDA then counts GPUs as nvidia-smi does.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    # So that being ended from outside ends the step too, and prints the tables.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    kept = [row for row in read_rows(bench.out) if row["step"] not in chosen and bool(row.get("dry")) == bench.dry]
    (bench.out / ROWS_FILE).write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in kept))
    with tempfile.TemporaryDirectory(prefix="enricher-gpu-") as scratch:
        run_steps(replace(bench, scratch=Path(scratch)), [step for step in STEPS if step.name in chosen], minutes)


if __name__ == "__main__":
    app()
