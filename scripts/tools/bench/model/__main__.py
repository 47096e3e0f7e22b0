"""Runs the legs in turn and prints the table."""

from __future__ import annotations

import logging
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from enricher.worker.commands.console import data_console
from enricher.worker.inference.graph.catalogue import variants_for
from enricher.worker.inference.run.model import open_model
from enricher.worker.inference.run.selection import problem_of, recipe_problem
from tools.bench.machine import processor
from tools.bench.model.cases import Case, cases
from tools.bench.model.legs import Leg, at_its_best, our_leg, stock_legs
from tools.bench.model.turns import cpu_s, take_turns
from tools.bench.outcome import Table
from tools.bench.printing import print_tables, write_figures
from tools.bench.repeating import Run, rates, ratios

Figures = dict[str, Any]
_COLUMNS = ("", "batch tokens", "windows/s", "tokens/s", "x stock", "by processor time", "others, cores")


def main(
    source: Annotated[str, typer.Argument(help="Model folder, or newswire-e5.")] = "newswire-e5",
    repetitions: Annotated[int, typer.Option(min=1, help="Runs of each leg, alternating.")] = 5,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
) -> None:
    """Every variant that this machine runs against ONNX Runtime's stock provider and optimizer, on the sample articles."""
    logging.basicConfig(level=logging.ERROR)
    console, checkpoint = Console(stderr=True), open_model(source)
    obstacles = {
        variant: problem_of(checkpoint, variant) or recipe_problem(checkpoint, variant)
        for variant in variants_for("cpu")
    }
    for variant, obstacle in obstacles.items():
        if obstacle:
            console.print(f"not {variant.name}: {obstacle}", soft_wrap=True)
    variants = [variant for variant, obstacle in obstacles.items() if obstacle is None]
    with tempfile.TemporaryDirectory() as scratch, console.status("building the graphs") as status:
        ours = [our_leg(checkpoint, variant, Path(scratch, "cache")) for variant in variants]
        stock = stock_legs(checkpoint, Path(scratch))
        results = []
        for case in cases(checkpoint):
            status.update(f"{case.name}: finding each leg's best batch size")
            best = [at_its_best(legs, case) for legs in (stock, *([leg] for leg in ours))]
            turns = {leg.name: (leg, case.batching(case.windows, leg.batch_tokens)) for leg in best}
            runs = take_turns(turns, repetitions, lambda text, case=case: status.update(f"{case.name}: {text}"))  # type: ignore[misc]
            results.append(_figures(case, best, runs))
    figures: Figures = {
        "model": checkpoint.name,
        "processor": processor(),
        "repetitions": repetitions,
        "cases": results,
    }
    print_tables(data_console(), [_table(result, figures["processor"]) for result in results])
    if json:
        write_figures(json, figures)


def _figures(case: Case, legs: Sequence[Leg], runs: Mapping[str, Sequence[Run]]) -> Figures:
    rows = [_row(case, leg, runs[leg.name], runs[legs[0].name]) for leg in legs]
    return {"case": case.name, "windows": len(case.windows), "real_tokens": case.real_tokens, "legs": rows}


def _row(case: Case, leg: Leg, runs: Sequence[Run], stock: Sequence[Run]) -> Figures:
    """Ratios are taken within each repetition, so that other work on the machine affects both sides."""
    windows_per_s, ratio = rates(runs).median, ratios(runs, stock)
    return {
        "leg": leg.name,
        "batch_tokens": leg.batch_tokens,
        "windows_per_s": windows_per_s,
        "tokens_per_s": windows_per_s * case.real_tokens / len(case.windows),
        "ratio_median": ratio.median,
        "ratio_lowest": ratio.low,
        "ratio_highest": ratio.high,
        "cpu_ratio": statistics.median(map(cpu_s, stock)) / statistics.median(map(cpu_s, runs)),
        "others_cores": statistics.median(run.others_cores for run in runs),
    }


def _table(result: Figures, processor: str) -> Table:
    title = f"{result['case']}: {result['windows']} windows, {result['real_tokens']} tokens; {processor}"
    rows = [
        (
            row["leg"],
            str(row["batch_tokens"]),
            f"{row['windows_per_s']:.1f}",
            f"{row['tokens_per_s']:.0f}",
            f"{row['ratio_median']:.2f} ({row['ratio_lowest']:.2f} to {row['ratio_highest']:.2f})",
            f"{row['cpu_ratio']:.2f}",
            f"{row['others_cores']:.2f}",
        )
        for row in result["legs"]
    ]
    return Table(title, _COLUMNS, rows)


if __name__ == "__main__":
    typer.run(main)
