"""A stand-in for a GPU: an engine that takes as long as one did, and whose labels come from a hash.

Everything around the device is the worker's own: the engine with its checks, the arrays of the packed float16 variant, two
threads. The stand-in sleeps, so it needs no processor time, and another thread has the interpreter meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from enricher.worker.inference.device.hardware import default_concurrency
from enricher.worker.inference.device.sessions import Feeds, Session
from enricher.worker.inference.graph.packed_cuda import PackedFloat16
from enricher.worker.inference.run.advice import advice_for
from enricher.worker.inference.run.engine import OnnxEngine
from enricher.worker.inference.run.model import PreparedModel, open_model
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import ModelCard
from enricher.worker.settings import Settings
from enricher.worker.wiring.loaded_tasks import Model

_POINTS = ((8_192, 0.0123), (32_768, 0.047))
"""Tokens and seconds of a batch: a model of 24 layers of 1,024 in float16 on an H100, two threads, windows of 256."""
_MULTIPLIER, _SPREAD = 2_654_435_761, 1 << 20
"""Knuth's multiplier, and how many values the hash has."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The time of a batch: linear through the two measured points, `slower` times as long."""

    slower: float = 1.0

    def seconds(self, tokens: int) -> float:
        (fewer, less_s), (more, more_s) = _POINTS
        per_token_s = (more_s - less_s) / (more - fewer)
        return self.slower * (less_s + (tokens - fewer) * per_token_s)

    def rate(self, batch_tokens: int) -> float:
        """Tokens per second of the bare device, in batches of this size."""
        return batch_tokens / self.seconds(batch_tokens)


@dataclass(frozen=True, slots=True)
class Turn:
    """One batch on the device: its tokens, and its begin and end (monotonic)."""

    tokens: int
    began_s: float
    ended_s: float


class Device:
    """Computes one batch at a time, in the order of the calls; each call blocks until its batch is done."""

    def __init__(self, cost: Cost) -> None:
        self.cost = cost
        self.turns: list[Turn] = []
        self._lock = threading.Lock()
        self._free_s = 0.0

    def compute(self, tokens: int) -> None:
        with self._lock:
            began_s = max(time.monotonic(), self._free_s)
            self._free_s = ended_s = began_s + self.cost.seconds(tokens)
            self.turns.append(Turn(tokens, began_s, ended_s))
        time.sleep(max(0.0, ended_s - time.monotonic()))


@dataclass(frozen=True, slots=True)
class _Session:
    """A token is the beginning of an entity if a hash of it and its neighbour is among the lowest `density`."""

    device: Device
    density: float
    labels: npt.NDArray[np.int32]
    """The labels that begin an entity."""

    def run(self, _outputs: Sequence[str], feeds: Feeds, /) -> list[npt.NDArray[Any]]:
        ids = feeds["input_ids"]
        self.device.compute(len(ids))
        mixed = ids.astype(np.uint64) + np.roll(ids, 1).astype(np.uint64) * np.uint64(31)
        hashed = (mixed * np.uint64(_MULTIPLIER) >> np.uint64(7)) % np.uint64(_SPREAD)
        labels = np.where(hashed < self.density * _SPREAD, self.labels[hashed % np.uint64(len(self.labels))], 0)
        return [labels.astype(np.int32), np.full(len(ids), 0.9, np.float32)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared(PreparedModel):
    """A model whose graph is never built."""

    session: Session

    def open_session(self, *, threads_per_run: int, concurrency: int) -> Session:
        del threads_per_run, concurrency
        return self.session


def stand_in_model(settings: Settings, device: Device, *, density: float) -> Model:
    """The configured model's tokenizer and labels, with this device. `density`: the share of tokens that begin an entity."""
    checkpoint = open_model(settings.model.source)
    assert checkpoint.labels[0] == "O", "label 0 is no entity"
    begins = [number for number, label in enumerate(checkpoint.labels) if label.startswith("B-")]
    variant = PackedFloat16()
    card = ModelCard(checkpoint.name, checkpoint.digest, variant.precision)
    session = _Session(device, density, np.array(begins, np.int32))
    prepared = _Prepared(Path(), checkpoint, card, "cuda", variant, session=session)
    tokenizer = ArticleTokenizer(checkpoint)
    concurrency = settings.model.concurrency or default_concurrency(prepared.device)
    engine = OnnxEngine(prepared, threads_per_run=1, pad_id=tokenizer.pad_id, concurrency=concurrency)
    advice = advice_for(checkpoint.folder, tokenizer.max_window_tokens)
    return Model(prepared, tokenizer, engine, advice, concurrency)
