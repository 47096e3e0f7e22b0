"""Runs the legs in turn and prints the table."""

from __future__ import annotations

import logging
import statistics
import tempfile
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

from enricher.worker.commands.console import data_console
from enricher.worker.inference.graph.catalogue import variants_for
from enricher.worker.inference.run.model import open_model
from enricher.worker.inference.run.selection import problem_of, recipe_problem
from tools.bench.machine import processor
from tools.bench.model.cases import Case, cases
from tools.bench.model.legs import Leg, Timing, at_its_best, our_leg, stock_legs, time_once

Figures = dict[str, Any]


def main(
    source: Annotated[str, typer.Argument(help="Model folder, or newswire-minilm.")] = "newswire-minilm",
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
        folder = Path(scratch)
        ours = [our_leg(checkpoint, variant, folder / "cache") for variant in variants]
        stock = stock_legs(checkpoint, folder)
        results = []
        for case in cases(checkpoint):
            status.update(f"{case.name}: finding each leg's best batch size")
            best = [at_its_best(legs, case) for legs in (stock, *([leg] for leg in ours))]
            results.append(_measured(case, best, repetitions, status.update))
    figures: Figures = {
        "model": checkpoint.name,
        "processor": processor(),
        "repetitions": repetitions,
        "cases": results,
    }
    for result in results:
        data_console().print(_table(result, figures["processor"]))
    if json:
        json.write_bytes(orjson.dumps(figures, option=orjson.OPT_INDENT_2))


def _measured(case: Case, legs: list[Leg], repetitions: int, show: Any) -> Figures:  # noqa: ANN401  rich's own type
    batches = {leg.name: case.batching(case.windows, leg.batch_tokens) for leg in legs}
    timings: dict[str, list[Timing]] = {leg.name: [] for leg in legs}
    for leg in legs:
        time_once(leg, batches[leg.name])  # warm
    for number in range(repetitions):
        for leg in legs:
            show(f"{case.name}: repetition {number + 1} of {repetitions}, {leg.name}")
            timings[leg.name].append(time_once(leg, batches[leg.name]))
    rows = [_row(case, leg, timings[leg.name], timings[legs[0].name]) for leg in legs]
    return {"case": case.name, "windows": len(case.windows), "real_tokens": case.real_tokens, "legs": rows}


def _row(case: Case, leg: Leg, timings: list[Timing], stock: list[Timing]) -> Figures:
    """Ratios are taken within each repetition, so that other work on the machine affects both sides."""
    seconds, cpu_s = (
        statistics.median(values) for values in ([t.seconds for t in timings], [t.own_cpu_s for t in timings])
    )
    ratios = sorted(theirs.seconds / each.seconds for each, theirs in zip(timings, stock, strict=True))
    return {
        "leg": leg.name,
        "batch_tokens": leg.batch_tokens,
        "windows_per_s": len(case.windows) / seconds,
        "tokens_per_s": case.real_tokens / seconds,
        "ratio_median": statistics.median(ratios),
        "ratio_lowest": ratios[0],
        "ratio_highest": ratios[-1],
        "cpu_ratio": statistics.median(t.own_cpu_s for t in stock) / cpu_s,
        "others_cores": statistics.median(t.others_cores for t in timings),
    }


def _table(result: Figures, processor: str) -> Table:
    title = f"{result['case']}: {result['windows']} windows, {result['real_tokens']} tokens; {processor}"
    table = Table(title=title, title_justify="left")
    for column in ("", "batch tokens", "windows/s", "tokens/s", "x stock", "by processor time", "others, cores"):
        table.add_column(column, justify="right" if column else "left")
    for row in result["legs"]:
        table.add_row(
            row["leg"],
            str(row["batch_tokens"]),
            f"{row['windows_per_s']:.1f}",
            f"{row['tokens_per_s']:.0f}",
            f"{row['ratio_median']:.2f} ({row['ratio_lowest']:.2f} to {row['ratio_highest']:.2f})",
            f"{row['cpu_ratio']:.2f}",
            f"{row['others_cores']:.2f}",
        )
    return table


if __name__ == "__main__":
    typer.run(main)
