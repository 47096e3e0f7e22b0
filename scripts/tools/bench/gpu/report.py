"""Figures -> JSON and a table in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from tools.bench.gpu.kernels import UNFUSED
from tools.bench.gpu.measure import Figure

NOT_A_MEASUREMENT = "**Dry run on a CPU, with tiny shapes: the figures below mean nothing.**"
HEADER = (
    "shape",
    "case",
    "leg",
    "batch tokens",
    "concurrency",
    "windows/s",
    "tokens/s",
    "TFLOP/s",
    "of peak",
    "packed is",
)


@dataclass(frozen=True, slots=True)
class Report:
    """All results. `kernels` is by shape, then leg."""

    machine: dict[str, str]
    dry: bool
    peak_tflops: float
    figures: Sequence[Figure]
    kernels: dict[str, dict[str, dict[str, int]]]

    @property
    def fused(self) -> bool:
        """Whether our variant ran fused attention only; False if no kernel was named."""
        ours = [found for legs in self.kernels.values() for leg, found in legs.items() if leg.startswith("packed")]
        return bool(ours) and all(found and UNFUSED not in found for found in ours)

    def to_json(self) -> bytes:
        """All figures, including those of slower settings."""
        return orjson.dumps(asdict(self) | {"fused": self.fused}, option=orjson.OPT_INDENT_2)

    def to_markdown(self) -> str:
        """The best of each leg, all figures, and the kernels."""
        parts = [NOT_A_MEASUREMENT, ""] if self.dry else []
        parts += [f"- {name}: {value}" for name, value in self.machine.items()]
        parts += [
            f"- matrix-product peak, measured: {self.peak_tflops:.3g} TFLOP/s",
            "",
            "Best setting of each leg:",
            "",
        ]
        best = _best(self.figures)
        parts += _table([self._row(figure, best) for figure in best])
        parts += ["", "All settings:", "", *_table([self._row(figure, best) for figure in self.figures])]
        parts += ["", "Attention kernels in one run:", ""]
        parts += [
            f"- {shape}, {leg}: {', '.join(f'{name} x {count}' for name, count in kernels.items()) or 'none named'}"
            for shape, legs in self.kernels.items()
            for leg, kernels in legs.items()
        ]
        return "\n".join([*parts, ""])

    def _row(self, figure: Figure, best: Sequence[Figure]) -> list[str]:
        ours = next((each for each in best if _case(each) == _case(figure) and each.leg.startswith("packed")), None)
        return [
            figure.shape,
            figure.case,
            figure.leg,
            str(figure.batch_tokens),
            str(figure.concurrency),
            f"{figure.windows_per_s:.0f}",
            f"{figure.tokens_per_s:.0f}",
            f"{figure.tflops:.3g}",
            f"{figure.tflops / self.peak_tflops:.0%}",
            "" if ours is None else f"{ours.windows_per_s / figure.windows_per_s:.2f}x",
        ]


def _best(figures: Sequence[Figure]) -> list[Figure]:
    """The fastest figure of each leg in each case."""
    best: dict[Any, Figure] = {}
    for figure in figures:
        key = (*_case(figure), figure.leg)
        if key not in best or figure.windows_per_s > best[key].windows_per_s:
            best[key] = figure
    return list(best.values())


def _case(figure: Figure) -> tuple[str, str]:
    return figure.shape, figure.case


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (HEADER, ["---"] * len(HEADER), *rows)]
