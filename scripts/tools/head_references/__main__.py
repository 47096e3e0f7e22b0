"""Runs every checkpoint of folders.py through transformers, one window at a time, and writes what it says.

Needs PyTorch, which our environment lacks: run it by `scripts/head-references`.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tools.head_references.folders import CLASSES, FAMILIES, HEADS, OUTPUTS, REFERENCE, articles, write_folder

if TYPE_CHECKING:
    from tools.head_references.folders import Cut, HeadName

Row = Any
"""float64 [values]"""


def main() -> None:
    """Write `FAMILY.npz` for each family: `ragged.HEAD`, `windows.HEAD` and `articles.HEAD`, `float32 [.., values]`."""
    OUTPUTS.mkdir(exist_ok=True)
    for family in FAMILIES:
        arrays: dict[str, Any] = {}
        with tempfile.TemporaryDirectory() as scratch:
            for head in HEADS:
                arrays |= _outputs(family, head, write_folder(family, head, Path(scratch) / head))
        np.savez_compressed(
            OUTPUTS / f"{family}.npz", **{key: value.astype(np.float32) for key, value in arrays.items()}
        )
        print(family, {key: value.shape for key, value in arrays.items()})


def _outputs(family: str, head: HeadName, folder: Path) -> dict[str, Any]:
    run = _runner(folder, head)
    reference = np.load(REFERENCE / family / "reference.npz")
    ragged = [ids[:length] for ids, length in zip(reference["input_ids"], reference["lengths"], strict=True)]
    cuts = articles()
    per_article = {count: [run(window.ids) for window in cut.windows] for count, cut in cuts.items()}
    by_window = [
        _row(head, values, window.owned_tokens(0))
        for count, cut in cuts.items()
        for window, values in zip(cut.windows, per_article[count], strict=True)
    ]
    return {
        f"ragged.{head}": np.stack([_row(head, run(ids), slice(1, len(ids) - 1)) for ids in ragged]),
        f"windows.{head}": np.stack(by_window),
        f"articles.{head}": np.stack([_article(head, cut, per_article[count]) for count, cut in cuts.items()]),
    }


def _runner(folder: Path, head: HeadName) -> Callable[[Any], Any]:
    """Ids -> logits `[values]`, or last hidden states `[tokens, width]`, in float64."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    kind = transformers.AutoModelForSequenceClassification if head in CLASSES else transformers.AutoModel
    model, info = kind.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    missing = [name for name in info["missing_keys"] if "pooler" not in name or head in CLASSES]
    assert not missing, f"{folder}: transformers knows other weights: {missing}"
    assert not info["unexpected_keys"], f"{folder}: transformers does not know {info['unexpected_keys']}"
    model.eval()

    def run(ids: Any) -> Any:  # noqa: ANN401  an array or a tensor
        with torch.no_grad():
            said = model(torch.tensor(np.asarray(ids, np.int64)[None]))
        values = said.logits if head in CLASSES else said.last_hidden_state
        return values[0].numpy().astype(np.float64)

    return run


def _row(head: HeadName, values: Row, owned: slice) -> Row:
    """A window's row."""
    if head in CLASSES:
        return values
    if head == "cls":
        return values[0]
    return values[owned].mean(axis=0) if owned.stop > owned.start else np.zeros(values.shape[1])


def _article(head: HeadName, cut: Cut, per_window: Sequence[Row]) -> Row:
    """The article's row, token by token: each takes what the window that owns it says, and all tokens count alike."""
    taken = list(_by_token(head, cut, per_window))
    assert len(taken) == len(cut.ids)
    return np.mean(taken, axis=0)


def _by_token(head: HeadName, cut: Cut, per_window: Sequence[Row]) -> Iterator[Row]:
    for window, values in zip(cut.windows, per_window, strict=True):
        owned = window.owned_tokens(0)
        for place in range(owned.start, owned.stop):
            yield values[place] if head == "mean" else _row(head, values, owned)


if __name__ == "__main__":
    main()
