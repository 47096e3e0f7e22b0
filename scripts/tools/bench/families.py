"""`scripts/bench families`: one model of each encoder family, all of one size, against PyTorch with the same weights.

The contest is that of the leg `peers`, without workers that need an export: each family and precision has its own.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.hardware import available_cores
from enricher.worker.inference.run.selection import problem_of, variants_for
from enricher.worker.runtime.devices import Precision
from tools import MINILM
from tools.bench.bench import Bench
from tools.bench.gpu.checkpoints import Shape, write_labelled
from tools.bench.legs.peers import Plan, compare
from tools.bench.outcome import Outcome, Row, Table, print_outcome, write_figures
from tools.bench.peers.line_up import COMPILED, PIPELINE, Places, on_a_cpu
from tools.bench.peers.results import OURS
from tools.bench.peers.transfer import Options
from tools.bench.runs import describe

BERT = Shape(
    model_type="bert",
    vocab_size=0,  # the tokenizer's
    hidden_size=384,
    num_hidden_layers=6,
    num_attention_heads=12,
    intermediate_size=1536,
    max_position_embeddings=512,
)
SHAPES: Mapping[str, Shape] = {
    "bert": BERT,
    "xlm-roberta": replace(BERT, model_type="xlm-roberta", max_position_embeddings=514, type_vocab_size=1),
    "deberta-v3": replace(
        BERT,
        model_type="deberta-v2",
        type_vocab_size=0,
        others={
            "layer_norm_eps": 1e-7,
            "relative_attention": True,
            "position_buckets": 256,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_biased_input": False,
        },
    ),
    # Its feed-forward has three products instead of two.
    "modernbert": replace(
        BERT,
        model_type="modernbert",
        intermediate_size=1024,
        max_position_embeddings=8192,
        others=dict.fromkeys(("bos_token_id", "cls_token_id"), 101)
        | dict.fromkeys(("eos_token_id", "sep_token_id"), 102),
    ),
}
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")


def main(
    families: Annotated[
        list[str] | None, typer.Argument(help=f"Of {', '.join(SHAPES)}; default: all.", metavar="[FAMILY]...")
    ] = None,
    repetitions: Annotated[int, typer.Option(min=1, help="How often each contender runs; contenders take turns.")] = 3,
    out: Annotated[Path | None, typer.Option(help="Folder for families.json.")] = None,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny runs that only show that everything works.")] = False,
) -> None:
    """Measure a model of each family (6 layers of 384, random weights) against PyTorch on a CPU, Kafka to Kafka.

    On PyTorch, if BENCH_TORCH_PYTHON names a Python that has it, are the Hugging Face pipeline and torch.compile. A family
    takes about five minutes. Speed only: the quality gate is not asked.
    """
    logging.basicConfig(level=logging.ERROR)
    chosen = families or list(SHAPES)
    if unknown := sorted({*chosen} - {*SHAPES}):
        raise typer.BadParameter(f"{', '.join(unknown)}: the families are {', '.join(SHAPES)}")
    with ExitStack() as closing:
        bench = Bench(1 if quick else repetitions, quick, lambda text: print(text, file=sys.stderr), closing)
        scratch = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="enricher-families-")))
        rows = [row for family in chosen for row in measure(bench, family, scratch)]
    print_outcome(outcome(rows))
    if out:
        write_figures(out / "families.json", {"machine": describe(), "rows": rows})


def measure(bench: Bench, family: str, scratch: Path) -> Iterator[Row]:
    """The rows of one family, in each precision that this machine has. All have one tokenizer, and so the same tokens."""
    checkpoint = Checkpoint.open(write_labelled(scratch / family, SHAPES[family], MINILM))
    for precision in PRECISIONS:
        fitting = (
            each for each in variants_for("cpu") if each.precision == precision and problem_of(checkpoint, each) is None
        )
        if variant := next(fitting, None):
            plan = Plan(_places(precision), ("news",), bench.repetitions, bench.quick)
            bench.say(f"{family} in {precision}")
            for row in compare(bench, {OURS: bench.model_of(checkpoint, variant)}, plan):
                yield {"family": family, "precision": precision} | row


def _places(precision: Precision) -> Places:
    """PyTorch in this precision alone, with fewer options than in the leg `peers`, because compiling takes minutes."""
    threads: list[Options] = [{"callers": available_cores(), "threads": 1}]
    here = replace(on_a_cpu(), jvm=False, onnx=None, torch=(precision,), threads=threads)
    return replace(here, windows_per_run=(4, 16), batch_sizes=(1, 8))


def outcome(rows: Sequence[Row]) -> Outcome:
    """A row of the table for each family and precision."""
    found = {(row["family"], row["precision"], row["worker"]): row for row in rows}
    columns = ("family", "precision", "articles/s", *(f"times {name}, /s, /CPU s" for name in _OTHERS))
    cells = []
    for (family, precision, worker), ours in found.items():
        if worker == OURS:
            others = [found.get((family, precision, name.format(precision)), {}) for name in _OTHERS.values()]
            cells.append((family, precision, _rate(ours), *(_times(ours, other) for other in others)))
    return Outcome({"rows": rows}, [Table("Families, news", columns, cells, _NOTE)])


_OTHERS = {"pipeline": PIPELINE, "torch.compile": COMPILED}
_NOTE = "Articles per second, and per second of processor time in brackets; how many times ours is that of PyTorch."


def _rate(row: Row) -> str:
    return f"{row['articles_per_s']:.3g} ({row['articles_per_cpu_s']:.3g})"


def _times(ours: Row, other: Row) -> str:
    if "articles_per_s" not in other:
        return str(other.get("not_measured", "not measured"))
    by_cpu = ours["articles_per_cpu_s"] / other["articles_per_cpu_s"]
    return f"{other['ours_over_this']:.2f}, {by_cpu:.2f}; it does {_rate(other)}"
