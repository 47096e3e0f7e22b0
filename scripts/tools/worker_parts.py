"""Parts of a worker for programs that run without one: changed settings, the only task, articles, windows, batches."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from enricher.errors import InvalidArticle
from enricher.worker.articles import ArticleReader
from enricher.worker.heads import NER, EntityHead
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import Article, ModelCard, Partition, RawRecord, TaskCard, Ticket, Window
from enricher.worker.rules.windowing import WindowCutter
from enricher.worker.settings import Settings
from enricher.worker.wiring.loaded_tasks import Model, Tasks, load_tasks, open_catalogue


def change(settings: Settings, **groups: Mapping[str, object]) -> Settings:
    """The settings with other values by group, such as `worker={"publish_share": 0}`. Nothing is checked."""
    changed = {name: getattr(settings, name).model_copy(update=dict(values)) for name, values in groups.items()}
    return settings.model_copy(update=changed)


def only_task(model: ModelCard) -> TaskCard:
    """The task that `load_tasks` derives from settings without tasks: entities by this model."""
    return TaskCard(NER, NER, model, named=False)


def tasks_of(settings: Settings, model: Model) -> Tasks:
    """Entities by this model, as `load_tasks` gives them."""
    task = only_task(model.card)
    return Tasks(model, (EntityHead.of(model.engine.labels, task),), settings, open_catalogue(settings))


def load_model(settings: Settings) -> Model:
    """The model of `model.source`, loaded and warmed up, whatever tasks the settings have. Raises ModelError."""
    return load_tasks(settings.model_copy(update={"tasks": {}})).model


_TEXTS = Partition("texts", 0)


def windows_of(tokenizer: ArticleTokenizer, cutter: WindowCutter, articles: Iterable[Article]) -> list[list[Window]]:
    """The windows of each article. Raises InvalidArticle if the tokenizer refuses one."""
    windows = []
    for number, article in enumerate(articles):
        [tokens] = tokenizer.tokenize([article])
        if isinstance(tokens, InvalidArticle):
            raise tokens
        ticket = Ticket(RawRecord(_TEXTS, number, None, None), 0.0, article=article)
        windows.append(cutter.cut(ticket, tokens, now_s=0.0))
    return windows


def decode_article(value: bytes, *, max_article_chars: int, max_value_bytes: int = sys.maxsize) -> Article:
    """The article in a value. Raises InvalidArticle."""
    reader = ArticleReader(max_article_chars=max_article_chars, max_value_bytes=max_value_bytes)
    found = reader.read(RawRecord(Partition("articles", 0), 0, None, value))
    assert isinstance(found, Article), "without settings nothing is a delete event"
    return found


Batches = list[list[Window]]


def in_order_of_arrival(windows: Sequence[Window], batch_tokens: int) -> Batches:
    """In order, as many windows as fit when padded to the longest."""
    batches: Batches = [[]]
    for window in windows:
        longest = max([window.length_tokens, *(each.length_tokens for each in batches[-1])])
        if batches[-1] and (len(batches[-1]) + 1) * longest > batch_tokens:
            batches.append([])
        batches[-1].append(window)
    return batches


def packed_batches(windows: Sequence[Window], max_tokens: int) -> Batches:
    """In order, as many windows as fit into `max_tokens`: packed batches gain nothing from similar lengths."""
    batches: Batches = [[]]
    left = max_tokens
    for window in windows:
        if window.length_tokens > left and batches[-1]:
            batches.append([])
            left = max_tokens
        batches[-1].append(window)
        left -= window.length_tokens
    return batches


def pad(windows: Sequence[Window], pad_id: int, *, step_tokens: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Ids and mask, `int64 [windows, length]`: the longest window's length, rounded up to whole steps."""
    lengths = np.array([window.length_tokens for window in windows])
    longest = -(-int(lengths.max()) // step_tokens) * step_tokens
    mask = (np.arange(longest) < lengths[:, None]).astype(np.int64)
    ids = np.full(mask.shape, pad_id, np.int64)
    for row, window in zip(ids, windows, strict=True):
        row[: window.length_tokens] = window.ids
    return ids, mask
