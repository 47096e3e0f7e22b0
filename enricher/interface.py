"""The Python interface: `Enricher` is the worker as an object of a program. The package `enricher` exports it.

It runs the same pipeline as `enricher run` and `enricher enrich`, and decides nothing about articles, models or batches.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Self

from enricher.answers import Record, Refusal
from enricher.errors import SettingsError
from enricher.worker.articles.documents import Document, json_bytes
from enricher.worker.articles.record_values import encode_record
from enricher.worker.files.exchange import Answer
from enricher.worker.records import DeadLetter
from enricher.worker.runtime.devices import Precision
from enricher.worker.settings import Settings, given_settings
from enricher.worker.wiring.formats import load_transforms
from enricher.worker.wiring.loaded_tasks import Tasks, load_tasks
from enricher.worker.wiring.memory_runs import Run

_Run = Run[Document, bytes]

_WITHOUT_EFFECT = ("kafka", "dead_letters", "health", "index", "log")
"""Groups of settings that a program has no use for: it has no topics, no probes, and its own log."""


class _Runs(set[_Run]):
    """The calls of an enricher that are in progress."""

    def close(self) -> None:
        """End all of them."""
        for run in [*self]:
            run.close()


class Enricher:
    """A loaded model, or the models of several tasks, that enriches articles.

    Several threads may call `enrich` at once; they share the model. A process that was forked cannot use the object of its
    parent, and must load its own. Closing it, or leaving a `with` block, ends calls in progress and drops the models.
    """

    def __init__(self, settings: Settings, tasks: Tasks) -> None:
        self._settings = settings
        self._tasks: Tasks | None = tasks
        self._process = os.getpid()
        self._runs = _Runs()
        # The interpreter must not end while a thread is inside the model.
        self._closing = weakref.finalize(self, self._runs.close)

    @classmethod
    def load(
        cls,
        source: str | Path | None = None,
        *,
        precision: Precision | None = None,
        device: str | None = None,
        settings: Settings | None = None,
        **groups: Mapping[str, Any],
    ) -> Self:
        """Load a model folder; `newswire-e5`, the default, is built in.

        `groups`: settings by the names of `enricher settings`, such as `articles={"fields": {"body": "/text"}}`,
        `output={"article": "whole"}`, `tasks={"topics": {"source": "models/topics"}}`; `source`, `precision` and `device`
        stand for `model={...}`. `settings`: all settings instead, such as those of `load_settings()`. Neither the
        environment nor a file is read. Groups without an effect here, such as `kafka`, are refused. Blocks for seconds.
        Raises SettingsError, ModelError.
        """
        named = {"source": None if source is None else str(source), "precision": precision, "device": device}
        model = {name: value for name, value in named.items() if value is not None}
        if useless := [name for name in _WITHOUT_EFFECT if name in groups]:
            raise SettingsError(
                f"{', '.join(useless)}: without effect here, because articles come from your program and records go to it; "
                "`enricher run` works between topics"
            )
        if settings is None:
            settings = given_settings({**groups, **({"model": {**groups.get("model", {}), **model}} if model else {})})
        elif model or groups:
            raise TypeError("either settings or single settings, not both")
        load_transforms(settings)
        return cls(settings, load_tasks(settings, every_shape=False, own_process=False))

    def enrich(self, articles: Iterable[Document]) -> Iterator[Record | Refusal]:
        """Enrich articles: mappings, or JSON as bytes or str. Gives one answer for each, in their order.

        `articles` is read in the thread that takes the answers, a few hundred articles ahead of the worker; while it blocks,
        no answer comes. Its errors are raised after the answers before them, as is TypeError for an item that is no article.
        Memory is bounded by `worker.max_in_flight_bytes` and the largest articles, not by their number. A RecordBatch of
        Arrow counts as its rows.
        """
        if isinstance(articles, str | bytes | Mapping):
            raise TypeError("enrich takes an iterable of articles: put a single article into a list")
        tasks = self._usable()
        return self._answers(tasks, chain.from_iterable(map(_rows, articles)))

    def close(self) -> None:
        """End calls in progress and drop the models. Iterators that are not at their end raise RuntimeError afterwards."""
        self._tasks = None
        self._closing()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _usable(self) -> Tasks:
        if self._tasks is None:
            raise RuntimeError("the Enricher is closed")
        if os.getpid() != self._process:
            raise RuntimeError("the Enricher was loaded before this process was forked: load one in each process")
        return self._tasks

    def _answers(self, tasks: Tasks, articles: Iterator[Document]) -> Iterator[Record | Refusal]:
        self._usable()
        run = _Run(self._settings, tasks, articles, value_of=json_bytes, write=encode_record)
        self._runs.add(run)
        try:
            yield from map(_answer, run)
        finally:
            self._runs.discard(run)
            run.close()


def _rows(item: Any) -> Iterable[Document]:  # noqa: ANN401  a caller may pass anything
    """The articles of a RecordBatch of Arrow; anything else counts as one article."""
    return item.to_pylist() if hasattr(item, "to_pylist") and not isinstance(item, Mapping) else (item,)


def _answer(answer: Answer[bytes]) -> Record | Refusal:
    written = answer.written
    if isinstance(written, DeadLetter):
        return Refusal(answer.offset, written.stage, written.error_type, written.message)
    return Record(answer.offset, written)
