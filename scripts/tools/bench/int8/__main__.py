"""Runs the quality gate over the embedded model for each way of quantising, and prints a table in Markdown."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from enricher.inference.checkpoint.folder import Checkpoint
from enricher.inference.device.processor import processor_features, processor_name
from enricher.inference.gate.check import Gate
from enricher.inference.gate.gold import DEFAULT_GOLD, read_gold
from enricher.inference.gate.verdict import DEFAULT_LIMIT_POINTS
from enricher.inference.graph.int8 import PaddedInt8
from enricher.inference.graph.openvino import OpenVinoBfloat16
from enricher.inference.run.model import EMBEDDED_FOLDER
from tools.bench.int8.variants import OtherInt8

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enricher.inference.checkpoint.gate_report import GateReport
    from enricher.inference.graph.variants import Variant

VARIANTS: tuple[tuple[str, Variant], ...] = (
    ("bf16", OpenVinoBfloat16()),
    ("int8, per channel (the one that is built)", PaddedInt8()),
    ("int8, per tensor", OtherInt8(per_channel=False)),
    ("int8, per channel, without the classifier", OtherInt8(exclude=("classifier",))),
    ("int8, per tensor, without the classifier", OtherInt8(per_channel=False, exclude=("classifier",))),
    (
        "int8, per channel, without classifier and last layer",
        OtherInt8(exclude=("classifier",), last_layers_in_float32=1),
    ),
    (
        "int8, per channel, without classifier and last two layers",
        OtherInt8(exclude=("classifier",), last_layers_in_float32=2),
    ),
    (
        "int8, per channel, without the products that narrow again (`output.dense`)",
        OtherInt8(exclude=("output.dense",)),
    ),
)


def main() -> None:
    """Measure every variant and print its line as soon as it is known."""
    parser = argparse.ArgumentParser(prog="scripts/int8-table", description=__doc__)
    parser.add_argument("--limit-points", type=float, default=DEFAULT_LIMIT_POINTS)
    limit_points: float = parser.parse_args().limit_points
    checkpoint = Checkpoint.open(EMBEDDED_FOLDER)
    sys.stdout.write(f"{processor_name('cpu')} ({', '.join(processor_features())})\n\n")
    sys.stdout.write("| variant | F1 | points | points, documents | worst composition | labels equal | verdict |\n")
    sys.stdout.write("|---|---|---|---|---|---|---|\n")
    with tempfile.TemporaryDirectory() as cache:
        gate = Gate(read_gold(DEFAULT_GOLD), limit_points, Path(cache), _progress)
        reference = gate.reference(checkpoint, "cpu")
        for number, (title, variant) in enumerate(VARIANTS):
            if variant.problem() is not None:
                sys.stdout.write(f"| {title} | - | - | - | - | - | not measured: {variant.problem()} |\n")
                continue
            for line in _lines(
                title, variant, gate.check(checkpoint, variant, "cpu", reference), with_reference=number == 0
            ):
                sys.stdout.write(line + "\n")
                sys.stdout.flush()


def _lines(title: str, variant: Variant, report: GateReport, *, with_reference: bool) -> Iterator[str]:
    sentences, documents = report.comparisons
    reference = sentences.overall.reference.f1
    if with_reference:
        yield f"| fp32 | {reference:.4f} | | | | | the reference |"
    worst = min(100 * (each.f1 - reference) for each in report.compositions if each.variant == variant.name)
    yield (
        f"| {title} | {sentences.overall.reduced.f1:.4f} | {sentences.overall.delta_points:+.2f} | "
        f"{documents.overall.delta_points:+.2f} | {worst:+.2f} | {100 * sentences.equal_labels:.2f} % | "
        f"{'passed' if report.passed else 'failed'} |"
    )


def _progress(stage: str, done: int, windows: int) -> None:
    if done == windows:
        sys.stderr.write(f"{stage}: done\n")


if __name__ == "__main__":
    main()
