"""The commands `train` and `join`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.checkpoint.onnx_folder import OnnxModel
from enricher.worker.inference.run.model import EMBEDDED, open_model
from tools.heads.checkpoint import UnfitHead, fit, is_half, join, logits, write_head
from tools.heads.features import first_tokens_of
from tools.heads.measuring import FOLDS, Quality, folds, quality
from tools.heads.texts import GENRE, Labelled, UnfitTexts, read_texts

PENALTY = 0.1
app = typer.Typer(no_args_is_help=True, add_completion=False)
Encoder = Annotated[str, typer.Option(help="A BERT checkpoint; its encoder is kept bit for bit.")]


@app.command("train")
def train(
    texts: Annotated[
        str, typer.Argument(help=f"JSON lines with text, label and document; or `{GENRE}`: the gold set.")
    ],
    out: Annotated[Path, typer.Option(help="The checkpoint folder to write.")],
    encoder: Encoder = EMBEDDED,
    *,
    head_only: Annotated[bool, typer.Option("--head-only", help="Write the head without its encoder.")] = False,
) -> None:
    """Train a head, print how good it is on documents that it was not trained on, and write it, trained on all."""
    console = Console(stderr=True, highlight=False)
    found = read_texts(texts)
    labels = sorted({each.label for each in found})
    checkpoint = _open_bert(encoder)
    console.print(f"{len(found)} texts, {len(labels)} labels; running the encoder")
    rows, owners = first_tokens_of([each.text for each in found], checkpoint)
    half, owned = is_half(checkpoint), np.array(owners)
    classes = np.array([labels.index(each.label) for each in found])
    measured = _measure(found, labels, rows, owned, half=half)
    console.print(_text_of(measured, labels))
    weights = fit(rows, classes[owned], len(labels), penalty=PENALTY, half=half)
    if head_only:
        write_head(out, checkpoint, weights, labels)
        return
    with tempfile.TemporaryDirectory() as folder:
        head = Path(folder) / out.name
        write_head(head, checkpoint, weights, labels)
        join(head, checkpoint, out)


@app.command("join")
def join_head(
    head: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="A folder that --head-only wrote.")],
    out: Annotated[Path, typer.Option(help="The checkpoint folder to write.")],
    encoder: Encoder = EMBEDDED,
) -> None:
    """Make a checkpoint folder of a head and the encoder that it was trained on."""
    join(head, _open_bert(encoder), out)


def _open_bert(source: str) -> Checkpoint:
    checkpoint = open_model(source)
    if isinstance(checkpoint, OnnxModel) or checkpoint.config.model_type != "bert":
        raise UnfitHead(f"{source} is not a BERT checkpoint with weights")
    return checkpoint


def _measure(
    texts: list[Labelled],
    labels: list[str],
    rows: np.ndarray[tuple[int, int], np.dtype[np.float32]],
    owners: np.ndarray[tuple[int], np.dtype[np.int64]],
    *,
    half: bool,
) -> Quality:
    """Cross-validation: each document is judged by a head that was trained without it, by the mean of its windows."""
    documents = [each.document for each in texts]
    classes, fold_of = np.array([labels.index(each.label) for each in texts]), folds(documents)
    sums = np.zeros((len(texts), len(labels)), np.float32)
    for fold in range(FOLDS):
        inside = fold_of[owners] == fold
        if inside.any():
            weights = fit(rows[~inside], classes[owners[~inside]], len(labels), penalty=PENALTY, half=half)
            np.add.at(sums, owners[inside], logits(weights, rows[inside]))
    return quality(classes.tolist(), sums.argmax(1).tolist(), documents, len(labels))


def _text_of(found: Quality, labels: list[str]) -> str:
    by_class = ", ".join(f"{label} {value:.3f}" for label, value in zip(labels, found.by_class, strict=True))
    return (
        f"macro-F1 {found.macro_f1:.3f} (95 %: {found.low:.3f} to {found.high:.3f}), accuracy {found.accuracy:.3f}; always "
        f"the commonest label: {found.majority_f1:.3f}. F1 by label: {by_class}. Cross-validation in {FOLDS} parts over "
        f"{found.texts} texts of {found.documents} documents."
    )


if __name__ == "__main__":
    try:
        app(standalone_mode=True)
    except (UnfitHead, UnfitTexts) as problem:
        sys.exit(f"train-head: {problem}")
