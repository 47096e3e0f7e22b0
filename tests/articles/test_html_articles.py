"""Articles whose bodies are HTML by `articles.body_format`: what is read, which limits hold, and what a record says."""

from __future__ import annotations

import sys
from collections.abc import Callable

import orjson
import pytest
from support.records import article_in

from enricher.errors import InvalidArticle, SettingsError
from enricher.worker.articles import ArticleReader, write_entities
from enricher.worker.loop.queues import beyond_the_record
from enricher.worker.records import Article, Entity, Partition, RawRecord
from enricher.worker.settings import load_settings
from enricher.worker.wiring.formats import article_reader, line_reader

Read = Callable[[RawRecord], Article]
Reads = Callable[..., Read]
HTML = "<p>Ana <b>Mül</b>ler&nbsp;&amp;&#32;&fjlig;ord</p>\n<p>Lisbon</p>"


def reading(reader: ArticleReader) -> Read:
    """The article of each record that this reads."""
    return lambda record: article_in(reader.read(record))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Makes the function that reads articles as a worker does with these settings of `articles`."""

    def reader(**articles: object) -> Read:
        for name, value in articles.items():
            monkeypatch.setenv(f"ENRICHER_ARTICLES__{name.upper()}", str(value))
        return reading(article_reader(load_settings()))

    return reader


def raw(body: object, **more: object) -> RawRecord:
    """The record of an article."""
    return RawRecord(Partition("articles", 0), 0, b"k", orjson.dumps({"id": "a", "body": body, **more}))


def source_slice(article: Article, source: str, word: str) -> str:
    """What the source has where a word of the body is."""
    assert article.source_map is not None
    start, end = article.source_map.source_range(article.body.index(word), article.body.index(word) + len(word))
    return source[start:end]


def test_the_model_reads_the_text_of_html_and_titles_as_they_are(reads: Reads) -> None:
    """A title is text in any case."""
    article = reads(body_format="html")(raw(HTML, title="Q&amp;A"))
    assert ("Q&amp;A", "Ana Müller\xa0& fjord\n\nLisbon") == (article.title, article.body)
    assert "Mül</b>ler" == source_slice(article, HTML, "Müller")


def test_auto_decides_for_each_article(reads: Reads) -> None:
    """One block that is HTML makes all blocks HTML, because one publisher wrote them."""
    read = reads(body_format="auto")
    assert "Ana Müller\xa0& fjord\n\nLisbon" == read(raw(HTML)).body
    text = read(raw("Q&amp;A, 3 < 4"))
    assert ("Q&amp;A, 3 < 4", None) == (text.body, text.source_map)
    assert "Q&A\n\nOslo" == read(raw(["Q&amp;A", "<p>Oslo</p>"])).body


def test_blocks_count_in_the_joined_source(reads: Reads) -> None:
    """Also where fields are elsewhere; the record has the separator."""
    read = reads(body_format="html", fields='{"body": "/content/text"}')
    blocks = ["<p>One <!-- ", "Par<b>is</b>"]
    article = read(raw(None, content={"text": blocks}))
    assert ("One\n\nParis", "\n\n") == (article.body, article.body_separator)
    assert "Par<b>is" == source_slice(article, "\n\n".join(blocks), "Paris")


def test_the_limit_of_characters_counts_text_and_that_of_bytes_the_source(reads: Reads) -> None:
    """Markup may be many times longer than the text, but not without a bound."""
    read = reads(body_format="html", max_article_chars=50, max_value_bytes=2000)
    assert "Oslo" == read(raw("<p class='a very long one'>" * 50 + "Oslo")).body
    with pytest.raises(InvalidArticle, match="title and body have 51 characters, at most 50 are allowed"):
        read(raw("<b>" + "x" * 51))


@pytest.mark.parametrize("body", ["<p></p>", "<script>Oslo</script>", "<!-- Oslo -->&nbsp;", "<b title='Oslo'", ""])
def test_html_without_visible_text_is_a_dead_letter(reads: Reads, body: str) -> None:
    """As a body of white space is, unless there is a title."""
    read = reads(body_format="html")
    with pytest.raises(InvalidArticle, match="title and body have no visible character"):
        read(raw(body))
    assert "Oslo" == read(raw(body, title="Oslo")).title


def test_a_missing_package_is_refused_with_the_command(monkeypatch: pytest.MonkeyPatch, reads: Reads) -> None:
    """Before any article is read."""
    monkeypatch.setitem(sys.modules, "enricher.worker.articles.html_text", None)
    for body_format in ("html", "auto"):
        with pytest.raises(SettingsError, match=r"body_format=.* pip install 'kafka-enricher\[html\]'"):
            reads(body_format=body_format)
    reads(body_format="text")


def test_lines_of_a_file_are_read_alike_and_our_own_samples_are_text(reads: Reads) -> None:
    """The embedded sample articles, which int8 is calibrated on, are not what a team publishes."""
    reads(body_format="html")
    assert "Müller" in reading(line_reader(load_settings()))(raw(HTML)).body
    assert HTML == reading(line_reader(load_settings(), mapped=False))(raw(HTML)).body


def test_the_map_counts_as_memory_of_the_article(reads: Reads) -> None:
    """What is beyond the record is counted while the article is in flight."""
    record = raw("<b>a</b>&amp;" * 100)
    article = reads(body_format="html")(record)
    assert article.source_map is not None
    assert article.source_map.size_bytes == beyond_the_record(article, record) > 0


def test_an_entity_off_by_a_character_is_noticed(reads: Reads) -> None:
    """The check before a record is written knows the map."""
    article = reads(body_format="html")(raw(HTML))
    start = HTML.index("Mül")
    found = Entity(field="body", start=start, end=start + len("Mül</b>ler"), text="Müller", label="PER", score=1.0)
    assert 1 == len(write_entities(article, [found]))
    with pytest.raises(AssertionError):
        write_entities(article, [found | {"start": start + 1}])
