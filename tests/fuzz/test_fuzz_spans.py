"""Any Unicode, any labels, any windows: what is written is valid, and each entity is its field's own characters."""

from __future__ import annotations

import json
import unicodedata
from functools import cache
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from rules.word_rule import words
from support.answers import WindowLabels, batch_result
from support.properties import any_text, examples
from support.records import encoder_of

from enricher.errors import InvalidArticle
from enricher.worker.articles.html_text import read_html
from enricher.worker.heads import EntityHead
from enricher.worker.inference.run.engine import OnnxEngine
from enricher.worker.inference.run.model import PreparedModel, prepare
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import Article, Batch, ModelCard, Partition, RawRecord, Ticket, TokenizedArticle, Window
from enricher.worker.rules.assembly import finish_enriched, store_answers
from enricher.worker.rules.windowing import WindowCutter
from tools.worker_parts import decode_article, only_task

SCHEMAS = Path(__file__).parents[2] / "schemas"
LABELS = ("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC")
TASK = only_task(ModelCard("newswire-minilm", "sha256:6a1f0c", "fp32"))
# As the scripts, joiners and oddities that texts really have, in words and between them, and then anything else.
FAMILIAR = st.sampled_from([
    "Angela Merkel", "São Paulo", "Zoe\u0308", "中文", "東京都", "الرياض", "אבג", "ไทย", "हिन्दी",
    "\U0001f469\u200d\U0001f680",
    "\U0001f1eb\U0001f1f7", "I\u0307stanbul", "ﬁne", "ß", "\u200b", "\u200d", "\u00ad", "\ufeff", "\u2028", "\x00", "\r\n",
    "\u3000", "\u0301\u0302", "...", "O'Brien-Smith", "[SEP]", "[UNK]", "##ing", "\uffff", "\U0010fffd", "x" * 120, " ",
])  # fmt: skip
TEXTS = st.lists(FAMILIAR | any_text(max_size=6), max_size=14).map("".join)
MARKUP = st.sampled_from([
    "<p>", "</p>", "<b class='x'>", "</b>", "<br>", "<!-- x -->", "<script>x</script>", "&amp;", "&uuml;", "&nbsp;",
    "&#x1F600;", "&lt", "<", "&", "<td>", "<pre>", "<svg>",
])  # fmt: skip
HTML = st.lists(FAMILIAR | MARKUP, max_size=20).map("".join)
FUZZ = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)


@cache
def folder() -> TemporaryDirectory[str]:
    """The folder where the model is built; removed with this process, for the current folder is emptied after each test."""
    return TemporaryDirectory()


@cache
def embedded() -> PreparedModel:
    """The model that comes with the package."""
    return prepare(None, device="cpu", precision="fp32", cache_dir=Path(folder().name))


@cache
def tokenizer() -> ArticleTokenizer:
    """Its tokenizer."""
    return ArticleTokenizer(embedded().checkpoint, max_article_tokens=100_000)


@cache
def validator(name: str) -> Draft202012Validator:
    """One of the contracts."""
    return Draft202012Validator(json.loads((SCHEMAS / f"{name}.schema.json").read_text("utf-8")))


def windows_of(
    article: Article, window_tokens: int, overlap_tokens: int, tokens_of: ArticleTokenizer | None = None
) -> tuple[Ticket, list[Window]]:
    """The part of a ticket, and its windows, cut as a worker does; by the embedded model's tokenizer, or another one."""
    tokens_of = tokens_of or tokenizer()
    ticket = Ticket(RawRecord(Partition("articles", 0), 7, b"k", b"{}", topic_id="i" * 22), 0.0, article=article)
    tokens = tokens_of.tokenize([article])[0]
    assert not isinstance(tokens, InvalidArticle)
    before, after = tokens_of.specials_before, tokens_of.specials_after
    return ticket, WindowCutter(window_tokens, overlap_tokens, before, after).cut(ticket, tokens, 0.0)


def written(ticket: Ticket) -> Any:  # noqa: ANN401  JSON
    """The record as it goes to Kafka, checked against its schema."""
    outgoing = encoder_of(max_record_bytes=16_000_000).outgoing(ticket)
    assert outgoing.kind == "record"
    assert outgoing.value is not None
    headers = {name: value.decode() for name, value in outgoing.headers if value is not None}
    validator("enriched-record-headers.v2").validate(headers)
    document = orjson.loads(outgoing.value)
    validator("enriched-record.v1").validate(document)
    return document


def check_spans(document: Any, article: Article) -> int:  # noqa: ANN401  JSON
    """Every entity is in its field, in order, without overlap, and of whole words of the text. How many there are."""
    before = {"title": 0, "body": 0}
    for entity in document["entities"]:
        text, start, end = article.text(entity["field"]), entity["start"], entity["end"]
        assert before[entity["field"]] <= start < end <= len(text)
        assert entity["text"] == text[start:end]
        assert any(map(str.isalnum, entity["text"]))
        assert not any(char not in "\n\r" and unicodedata.category(char) == "Cc" for char in entity["text"])
        inside = words(text)
        assert start in {first for first, _ in inside}
        assert end in {last for _, last in inside}
        before[entity["field"]] = end
    return len(document["entities"])


@FUZZ
@given(data=st.data(), title=TEXTS, body=TEXTS, window_tokens=st.integers(5, 40))
def test_any_labels_on_any_text_give_spans_of_that_text(
    data: st.DataObject, title: str, body: str, window_tokens: int
) -> None:
    """Also with labels that no model would give: insides without a begin, kinds that change within a word."""
    article = Article("a", title, body)
    document, windows = labelled_at_random(data, article, window_tokens)
    check_spans(document, article)
    assert document["coverage"]["windows"] == windows


@FUZZ
@given(data=st.data(), body=HTML, window_tokens=st.integers(5, 40))
def test_any_labels_on_any_html_give_spans_of_its_source(data: st.DataObject, body: str, window_tokens: int) -> None:
    """In order; each slice begins and ends with the first and last character of its text, or with their references."""
    text, source_map = read_html([body])
    document, _ = labelled_at_random(data, Article("a", "Oslo", text, source_map=source_map), window_tokens)
    before = 0
    for entity in document["entities"]:
        if entity["field"] == "body":
            assert before <= entity["start"] < entity["end"] <= len(body)
            seen = unescape(body[entity["start"] : entity["end"]])
            assert (seen[0], seen[-1]) == (entity["text"][0], entity["text"][-1])
            before = entity["end"]


def labelled_at_random(data: st.DataObject, article: Article, window_tokens: int) -> tuple[Any, int]:
    """The record of an article whose tokens have any labels, and the number of its windows."""
    overlap_tokens = data.draw(st.integers(0, (window_tokens - 3) // 2))
    ticket, windows = windows_of(article, window_tokens, overlap_tokens)
    dice = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    heads = [EntityHead.of(LABELS, TASK)]
    for window in dice.permutation(np.array(windows, object)):
        labels = dice.choice(len(LABELS), len(window.ids), p=[0.3, *[0.7 / 6] * 6]).astype(np.int32)
        store_answers(batch_result([WindowLabels(window, labels, dice.random(len(window.ids), np.float32))]), heads)
    if not windows:
        finish_enriched(ticket, heads)
    return written(ticket), len(windows)


def test_every_token_of_any_text_is_owned_by_one_window() -> None:
    """Labels that are all of one kind come back in entities that have a letter of every token: none is left out."""
    heads = [EntityHead.of(LABELS, TASK)]

    @FUZZ
    @given(title=TEXTS, body=TEXTS, window_tokens=st.integers(5, 40))
    def holds(title: str, body: str, window_tokens: int) -> None:
        article = Article("a", title, body)
        ticket, windows = windows_of(article, window_tokens, 1)
        for window in windows:
            inside = np.full(len(window.ids), LABELS.index("I-PER"), np.int32)
            store_answers(batch_result([WindowLabels(window, inside, np.ones(len(window.ids), np.float32))]), heads)
        if not windows:
            finish_enriched(ticket, heads)
        document = written(ticket)
        check_spans(document, article)
        (tokens,) = tokenizer().tokenize([article])
        assert isinstance(tokens, TokenizedArticle)
        for field in tokens.fields:
            text = article.text(field.name)
            found = [range(each["start"], each["end"]) for each in document["entities"] if each["field"] == field.name]
            for chars in map(field.spans.chars_of, range(len(field.ids))):
                first = next((char for char in range(*chars) if text[char].isalnum()), None)
                assert first is None or any(first in each for each in found)

    holds()


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.long)])
def test_the_model_itself_on_any_text(count: int) -> None:
    """Through the real engine, in batches of one length mixed with another: no text makes it fail, spans hold."""
    engine = OnnxEngine(embedded(), threads_per_run=2, pad_id=tokenizer().pad_id)
    heads = [EntityHead.of(engine.labels, TASK)]

    @examples(count, parent=FUZZ)
    @given(texts=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=8))
    def holds(texts: list[tuple[str, str]]) -> None:
        articles = [Article("a", title, body) for title, body in texts]
        cut = [windows_of(article, 24, 6) for article in articles]
        windows = tuple(window for _, windows in cut for window in windows)
        if windows:
            result = engine.run(Batch(windows))
            assert not result.failures
            store_answers(result, heads)
        for article, (ticket, own) in zip(articles, cut, strict=True):
            if not own:
                finish_enriched(ticket, heads)
            check_spans(written(ticket), article)

    holds()


@FUZZ
@given(
    article=st.fixed_dictionaries(
        {"id": any_text(min_size=1, max_size=9), "body": TEXTS},
        optional={"title": TEXTS, "language": TEXTS, "source": st.none() | TEXTS, "url": TEXTS, "other": st.integers()},
    )
)
def test_what_is_read_can_be_written(article: dict[str, Any]) -> None:
    """From bytes to bytes: an article that the codec takes has a record that its schema takes, with its own metadata."""
    try:
        found = decode_article(json.dumps(article).encode("utf-8", "surrogatepass"), max_article_chars=100_000)
    except InvalidArticle:
        return
    ticket, windows = windows_of(found, 512, 0)
    heads = [EntityHead.of(LABELS, TASK)]
    for window in windows:
        length = len(window.ids)
        answer = WindowLabels(window, np.ones(length, np.int32), np.ones(length, np.float32))
        store_answers(batch_result([answer]), heads)
    if not windows:
        finish_enriched(ticket, heads)
    document = written(ticket)
    assert document["id"] == article["id"]
    for name in ("language", "source", "url"):
        assert document.get(name) == article.get(name)


def test_the_check_of_spans_can_fail() -> None:
    """A span that is one character off is seen, so the tests above prove something."""
    entity = {"field": "body", "start": 1, "end": 7, "text": "Berlin"}
    with pytest.raises(AssertionError):
        check_spans({"entities": [entity]}, Article("a", "", "Berlin."))
