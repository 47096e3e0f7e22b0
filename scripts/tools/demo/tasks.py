"""`scripts/demo --tasks`: entities, the genre and an embedding of each article, by three heads on one encoder."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from enricher.worker.inference.run.model import EMBEDDED, open_model
from tools import ROOT
from tools.demo.checkpoints import join, write_embedding
from tools.demo.outcome import Outcome

TASKS = "--tasks"
GENRE = ROOT / "enricher" / "models" / "heads" / "genre"
_TITLE_WIDTH = 44


def tasks_settings(folder: Path, console: Console) -> dict[str, str]:
    """Write the checkpoints and `tasks.toml`, print it, and return the environment variable that names it."""
    encoder = open_model(EMBEDDED)
    join(GENRE, encoder, folder / "genre")
    write_embedding(encoder, folder / "vectors", "mean_tokens", normalised=True)
    toml = (
        f'[tasks.entities]\nsource = "{EMBEDDED}"\n\n'
        f"[tasks.genre]\nsource = '{folder / 'genre'}'\n\n"
        f"[tasks.vectors]\nsource = '{folder / 'vectors'}'\nvector = \"float16\"\n"
    )
    path = folder / "tasks.toml"
    path.write_text(toml, encoding="utf-8")
    console.rule("settings")
    console.print(toml, markup=False, highlight=False)
    return {"ENRICHER_CONFIG": str(path)}


def show_tasks(console: Console, articles: Sequence[Mapping[str, Any]], outcomes: Sequence[Outcome]) -> None:
    """Print the genre of each article, and which other article has the nearest vector."""
    records = {each.value["id"]: each.value for each in outcomes if each.value is not None}
    known = [article for article in articles if article["id"] in records]
    if len(known) < 2:
        return
    vectors = np.stack([vector_of(records[article["id"]]) for article in known])
    near = vectors @ vectors.T
    np.fill_diagonal(near, -np.inf)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("article", "nearest article by its vector"):
        table.add_column(column, width=_TITLE_WIDTH, overflow="ellipsis", no_wrap=True)
    for column in ("cosine", "genre", "score"):
        table.add_column(column, justify="right" if column != "genre" else "left")
    for article, row in zip(known, near, strict=True):
        [genre] = records[article["id"]]["classifications"]
        nearest = known[int(row.argmax())]["title"]
        table.add_row(article["title"], nearest, f"{row.max():.3f}", genre["label"], f"{genre['score']:.2f}")
    console.print()
    console.print(table)
    console.print(
        "This encoder was trained to find names, so its vectors differ little; for search, name a sentence model in a task.",
        style="bold",
    )


def vector_of(record: Mapping[str, Any]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """The embedding of a record, as `float32 [dimensions]`."""
    [embedding] = record["embeddings"]
    if "vector" in embedding:
        return np.array(embedding["vector"], np.float32)
    return np.frombuffer(base64.b64decode(embedding["vector_float16"]), "<f2").astype(np.float32)
