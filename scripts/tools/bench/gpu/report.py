"""The rows of a run -> tables, the plot and the claims. What has no row is called "not run"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tools.bench.gpu.legs import PACKED_FP16, PACKED_FP32, STOCK
from tools.bench.gpu.rows import GPU_STATE
from tools.bench.gpu.speed import BASE, LARGE
from tools.bench.outcome import Claim, Outcome, Plot, Row, Series, Table, cell
from tools.bench.peers import results as peers

NOT_RUN = "not run"
NOT_A_MEASUREMENT = "Dry run on a CPU, with tiny shapes: the figures mean nothing."
OURS = PACKED_FP16.name
COMPARED = (
    (LARGE, OURS),
    (LARGE, "PyTorch fp16, eager"),
    (LARGE, PACKED_FP32.name),
    (LARGE, "PyTorch fp32, eager"),
    (BASE, OURS),
    (BASE, STOCK),
    (BASE, "PyTorch fp16, eager"),
    (BASE, "PyTorch fp16, compiled"),
)
CASES = ("256 each", "news, by arrival", "news, sorted")


def outcome(rows: Sequence[Row], questions: Mapping[str, str]) -> Outcome:
    """The comparison, then each step's question and rows, and which did not run; a claim for each that has a wrong row.

    `questions`: by name of the step, in their order.
    """
    note = NOT_A_MEASUREMENT if any(row.get("dry") for row in rows) else ""
    title = "Real tokens per second at each leg's best setting, and how many times as fast ours is"
    comparison = Table(title, ("shape and leg", *CASES, "of peak"), list(_comparison(rows)), note)
    tables = [comparison] if any(row.get("shape") and row.get("leg") for row in rows) else []
    ran = {row["step"] for row in rows}
    for step, question in questions.items():
        tables += _tables(f"{step}: {question}", [row for row in rows if row["step"] == step], rows)
    if lacking := [(step, question) for step, question in questions.items() if step not in ran]:
        tables.append(Table("Not run", ("step", "question"), lacking))
    compared = [row for row in rows if row["step"] == peers.STEP and "worker" in row]
    wrong = dict.fromkeys(row["step"] for row in rows if row.get("ok") is False)
    claims = [Claim(f"{step}: {_reason(step, rows)}", held=False) for step in wrong]
    plot = _plot(rows)
    return Outcome(
        {"rows": len(rows)},
        [*tables, *peers.tables(compared)],
        [plot] if plot else [],
        [*claims, *peers.claims(compared)],
    )


def _plot(rows: Sequence[Row]) -> Plot | None:
    """The comparison as bars, without the sorted case; None if a leg of it was not run."""
    series = []
    for case in CASES[:2]:
        best = [_best(rows, shape, leg, case) for shape, leg in COMPARED]
        measured = [row for row in best if row]
        if len(measured) < len(COMPARED):
            return None
        names = [f"{row['shape']}: {row['leg']}" for row in measured]
        series.append(Series(case, names, [row["tokens_per_s"] / 1e6 for row in measured]))
    return Plot("gpu", "Real tokens per second on this GPU", "bars", "million tokens/s", "", series)


def _reason(step: str, rows: Iterable[Row]) -> str:
    """The first wrong row of a step, without what every row has."""
    wrong = next(row for row in rows if row["step"] == step and row.get("ok") is False)
    return ", ".join(f"{key} {cell(value)}" for key, value in wrong.items() if key not in _EVERYWHERE)


def _comparison(rows: Sequence[Row]) -> Iterator[list[str]]:
    for shape, leg in COMPARED:
        best = [_best(rows, shape, leg, case) for case in CASES]
        ours = [_best(rows, shape, OURS, case) for case in CASES]
        cells = [_ratio(*pair) for pair in zip(best, ours, strict=True)]
        yield [f"{shape}: {leg}", *cells, NOT_RUN if best[0] is None else _of_peak(best[0], rows)]


def _best(rows: Iterable[Row], shape: str, leg: str, case: str) -> Row | None:
    found = [row for row in rows if (row.get("shape"), row.get("leg"), row.get("case")) == (shape, leg, case)]
    return max(found, key=lambda row: float(row["tokens_per_s"]), default=None)


def _ratio(row: Row | None, ours: Row | None) -> str:
    if row is None:
        return NOT_RUN
    times = f" ({ours['tokens_per_s'] / row['tokens_per_s']:.2f}x)" if ours and row["leg"] != OURS else ""
    return f"{row['tokens_per_s']:,.0f}{times}"


def _of_peak(row: Row, rows: Iterable[Row]) -> str:
    """Its TFLOP/s over what the device sustains in the leg's precision."""
    precision = "fp32" if "fp32" in row["leg"] else "fp16"
    peaks = [each["tflops"] for each in rows if each.get("sustained") and each["precision"] == precision]
    return f"{row['tflops'] / peaks[-1]:.0%}" if peaks else NOT_RUN


_EVERYWHERE = {"step", "at_s", "dry", "ok", *GPU_STATE}
"""Keys of every row."""


def _tables(title: str, own: Sequence[Row], rows: Sequence[Row]) -> Iterator[Table]:
    """A table for each kind of row of a step. The step `peers` has tables of its own."""
    kinds: dict[tuple[str, ...], list[Row]] = {}
    for row in own:
        keys = tuple(key for key in row if key not in _EVERYWHERE - {"ok"})
        if "worker" not in row:
            kinds.setdefault(keys, []).append(row)
    for keys, found in kinds.items():
        peak = ["of peak"] if "leg" in keys else []
        cells = [
            [
                *(cell(row[key]) for key in keys),
                *(_of_peak(row, rows) for _ in peak),
                *(cell(row.get(key, NOT_RUN)) for key in GPU_STATE),
            ]
            for row in found
        ]
        yield Table(title, [*keys, *peak, *GPU_STATE], cells)
