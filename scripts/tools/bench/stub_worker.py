"""A worker whose model needs no CPU; everything else is real: Kafka, tokenizer, batches, spans, transactions.

    python -m tools.bench.stub_worker    # settings as JSON on standard input, then commands (see Child)

Commands: `{"tokens_per_s": 50000.0}` makes its device take that long for padded tokens, waiting without computing, as a
worker waits for a GPU; `{"tokens_per_s": null}` makes it answer at once. Each is answered by a `report`. End of input
stops the worker gracefully.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import numpy as np

from enricher.worker.build.loaded_model import Model
from enricher.worker.inference.graph.variants import starts_in_a_row
from enricher.worker.inference.run.advice import advice_for
from enricher.worker.inference.run.model import PreparedModel, prepare
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.loop.loop import Worker
from enricher.worker.records import Batch, BatchResult, RunOutput, TokenLabels
from enricher.worker.settings import Settings
from tools.bench.obeying import Command, read_settings, report, run_obeying
from tools.only_task import tasks_of

if TYPE_CHECKING:
    from enricher.worker.inference.run.engine import OnnxEngine

_TOKENS_PER_ENTITY = 25
"""One token in this many is an entity, as in the sample articles: decoding and writing entities is real work too."""


class StubEngine:
    """Answers in the model's shapes and dtypes, and takes time only if `tokens_per_s` is set."""

    def __init__(self, prepared: PreparedModel) -> None:
        self.card = prepared.card
        self.labels = prepared.checkpoint.labels
        self.tokens_per_s: float | None = None
        self._entity = next(index for index, label in enumerate(self.labels) if label != "O")
        self._other = self.labels.index("O")

    def run(self, batch: Batch) -> BatchResult:
        """Wait as long as the device would take, then return fixed labels."""
        if self.tokens_per_s:
            time.sleep(batch.padded_tokens / self.tokens_per_s)
        ids = np.concatenate([window.ids for window in batch.windows])
        labels = np.where(ids % _TOKENS_PER_ENTITY == 0, self._entity, self._other).astype(np.int32)
        scores = np.full(len(ids), 0.9, np.float32)
        return BatchResult(
            batch, [RunOutput(batch.windows, starts_in_a_row(batch.windows), [TokenLabels(labels, scores)])]
        )

    def padded_tokens(self, batch: Batch) -> int:
        return batch.padded_tokens

    def open_thread(self) -> None:
        """No set-up per thread is needed."""


def stub_model(settings: Settings, engine: StubEngine, prepared: PreparedModel) -> Model:
    """The model with its own tokenizer, the stub as its engine, and one run at a time."""
    tokenizer = ArticleTokenizer(
        prepared.checkpoint,
        max_article_tokens=settings.articles.max_article_tokens,
        too_long=settings.articles.too_long,
    )
    advice = advice_for(prepared.checkpoint.folder, tokenizer.max_window_tokens)
    return Model(prepared, tokenizer, cast("OnnxEngine", engine), advice, concurrency=1)


def main(
    changed: Callable[[Settings], Settings] = lambda settings: settings,
    answer: Callable[[Worker], object] = report,
    *,
    waits: bool = False,
) -> None:
    """Run the worker until the input ends. `changed`: its settings; the others as in `run_obeying`."""
    settings = changed(read_settings())
    wanted = settings.model
    prepared = prepare(wanted.source, device=wanted.device, precision=wanted.precision, cache_dir=wanted.cache_dir)
    engine = StubEngine(prepared)

    def obey(command: Command) -> None:
        if "tokens_per_s" in command:
            engine.tokens_per_s = command["tokens_per_s"]

    tasks = tasks_of(settings, stub_model(settings, engine, prepared))
    run_obeying(settings, tasks, obey, answer, waits=waits)


if __name__ == "__main__":
    main()
