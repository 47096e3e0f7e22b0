"""Prepared models and windows for the tests of inference."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from support.models import open_minilm

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.graph.padded import PackedFloat32
from enricher.worker.inference.run.engine import OnnxEngine
from enricher.worker.inference.run.model import PreparedModel, prepare_variant
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import Article, Float32Array, Partition, RawRecord, Ticket, TokenizedArticle, Window

MakeWindow = Callable[[Sequence[int]], Window]
DATA = Path(__file__).parent.parent / "data"
REFERENCE = DATA / "reference"
"""Small checkpoints of each family, with PyTorch's logits."""


def change_config(folder: Path, file: str = "config.json", /, **changes: object) -> Path:
    """Change values of config.json, or of another file, which need not be there; returns the folder."""
    path = folder / file
    values = json.loads(path.read_bytes()) if path.is_file() else {}
    path.write_text(json.dumps({**values, **changes}))
    return folder


def refusal_of(folder: Path) -> str:
    """The reason for which a folder is not opened."""
    with pytest.raises(ModelError) as caught:
        Checkpoint.open(folder)
    return str(caught.value)


def tokenized(tokenizer: ArticleTokenizer, body: str, title: str = "") -> TokenizedArticle:
    """The tokens of an article, which is not refused."""
    (result,) = tokenizer.tokenize([Article("1", title, body)])
    assert isinstance(result, TokenizedArticle)
    return result


def poison(model: PreparedModel, row: Float32Array, value: float = np.nan) -> None:
    """Change a row of the weights beside its graph, which has it once, to numbers that are not finite."""
    path = model.onnx_path.parent / "model.weights"
    content = path.read_bytes()
    assert content.count(row.tobytes()) == 1
    path.write_bytes(content.replace(row.tobytes(), np.full_like(row, value).tobytes()))


def parts_of(windows: Sequence[Window], sizes: Sequence[int]) -> list[Sequence[Window]]:
    """The windows in batches of these sizes; the last one repeats."""
    batches, left, wanted = list[Sequence[Window]](), windows, list(sizes)
    while left:
        size = wanted.pop(0) if len(wanted) > 1 else wanted[0]
        batches.append(left[:size])
        left = left[size:]
    return batches


def reference_of(family: str, window: MakeWindow) -> tuple[list[Window], Float32Array]:
    """Eight windows of 1 to 130 tokens, and PyTorch's logits `[tokens, labels]` for all of their tokens."""
    reference = np.load(REFERENCE / family / "reference.npz")
    rows = zip(reference["input_ids"], reference["lengths"], strict=True)
    real = reference["attention_mask"].astype(bool)
    return [window(ids[:length].tolist()) for ids, length in rows], reference["logits"][real]


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for the whole run."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def minilm(cache_dir: Path) -> PreparedModel:
    """newswire-minilm, in the variant that ONNX Runtime's own provider runs on every CPU."""
    return prepare_variant(open_minilm(), PackedFloat32(), "cpu", cache_dir=cache_dir)


@pytest.fixture(scope="session")
def engine(minilm: PreparedModel) -> OnnxEngine:
    """An engine over it."""
    return OnnxEngine(minilm, threads_per_run=1, pad_id=0)


@pytest.fixture(scope="session")
def tokenizer(minilm: PreparedModel) -> ArticleTokenizer:
    """Its tokenizer, without an effective limit."""
    return ArticleTokenizer(minilm.checkpoint, max_article_tokens=100_000)


@pytest.fixture(scope="session")
def pud_windows(window: MakeWindow) -> list[Window]:
    """Each gold sentence as a window, with the ids that the reference logits were made from."""
    reference = np.load(REFERENCE / "pud_logits.npz")
    ends = np.cumsum(reference["lengths"])
    return [window(ids.tolist()) for ids in np.split(reference["input_ids"], ends[:-1])]


@pytest.fixture(scope="session")
def window() -> MakeWindow:
    """Make a window of no article from ids, special tokens included."""

    def make(ids: Sequence[int]) -> Window:
        ticket = Ticket(RawRecord(Partition("articles", 0), 0, None, None), arrived_s=0.0)
        return Window(
            ticket,
            np.array(ids, np.int32),
            start=0,
            own_start=0,
            own_stop=len(ids) - 2,
            specials_before=1,
            arrived_s=0.0,
        )

    return make
