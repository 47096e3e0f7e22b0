"""A small gold set, and variants whose quality is known: equal to fp32, and damaged on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.models import open_minilm

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.sessions import Feeds, Session
from enricher.worker.inference.graph.graph_files import OnnxWriter
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.inference.graph.variants import Scored
from enricher.workshop.gate.gold import DEFAULT_GOLD, GoldSet, read_gold

SENTENCES = 40


@dataclass(frozen=True, slots=True)
class Twin(PaddedFloat32):
    """The float32 variant, declared as reduced: it loses nothing."""

    name = "padded-twin"
    precision = "bf16"
    reduced = True


@dataclass(frozen=True, slots=True)
class Quantised(Twin):
    """A variant that needs a recipe, and runs anywhere."""

    name = "padded-quantised"
    precision = "int8"
    quantised = True


@dataclass(frozen=True, slots=True)
class Elsewhere(Twin):
    """A variant that this machine cannot run."""

    name = "padded-elsewhere"
    precision = "fp16"

    def problem(self) -> str | None:
        """Always."""
        return "the processor has no wings"


@dataclass(frozen=True, slots=True)
class Damaged(Twin):
    """Attention rounded to multiples of 2: a variant that loses quality, as a careless quantisation would."""

    name = "padded-damaged"
    precision = "int8"

    def attention(
        self, writer: OnnxWriter, projected: tuple[str, str, str], *, heads: int, output: str, scored: Scored | None
    ) -> str:
        """Round what attention returns."""
        whole = PaddedFloat32.attention(self, writer, projected, heads=heads, output=f"{output}.whole", scored=scored)
        step = writer.constant("damage", np.array(2.0, np.float32))
        return writer.node(
            "Mul",
            [writer.node("Round", [writer.node("Div", [whole, step], f"{output}.steps")], f"{output}.rounded"), step],
            output,
        )


class NotFinite:
    """A session of a padded variant with all labels right, and a NaN among the logits and scores of each window."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def run(self, outputs: Sequence[str], feeds: Feeds, /) -> list[npt.NDArray[Any]]:
        """The real outputs, damaged."""
        labels, scores, logits = (each.copy() for each in self._session.run(outputs, feeds))
        scores[:, 1], logits[:, 1, 0] = np.nan, np.nan
        return [labels, scores, logits]


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for the whole run."""
    return tmp_path_factory.mktemp("gate-graphs")


@pytest.fixture(scope="session")
def few_sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first sentences of the default gold set, as a file."""
    path = tmp_path_factory.mktemp("gold") / "few.jsonl"
    path.write_bytes(b"".join(DEFAULT_GOLD.read_bytes().splitlines(keepends=True)[:SENTENCES]))
    return path


@pytest.fixture(scope="session")
def gold(few_sentences: Path) -> GoldSet:
    """The same, read."""
    return read_gold(few_sentences)


@pytest.fixture(scope="session")
def minilm() -> Checkpoint:
    """A trained model, read once."""
    return open_minilm()
