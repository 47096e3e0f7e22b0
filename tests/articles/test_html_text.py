"""HTML is recognised by rule, read as a reader sees it, and each character is mapped to its source.

And articles whose bodies are HTML by `articles.body_format`: which limits hold, and what a record says.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from html import unescape
from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import any_text
from support.records import article_in
from turbohtml import tokenize

from enricher.errors import InvalidArticle, SettingsError
from enricher.worker.articles import ArticleReader, html_text, write_entities
from enricher.worker.articles.html_rule import looks_like_html
from enricher.worker.articles.html_text import read_html
from enricher.worker.loop.queues import beyond_the_record
from enricher.worker.records import Article, Entity, Partition, RawRecord, SourceMap
from enricher.worker.settings import load_settings
from enricher.worker.wiring.formats import article_reader, line_reader

RECOGNISED = [
    "<p>Ana met Emma.</p>", " \n<div class='a'>text", "<!-- wp:paragraph -->\nText", "<!DOCTYPE html>\n<html>", "One<p>two",
    "One<br>two", "One<BR/>two", "Ana met <b>Emma</b>.", 'He <a href="x"\n>said</a > so', "<H1>Title", "a <i>b</b> c</i>",
    "<img src=a>Text",
]  # fmt: skip
LEFT_ALONE = [
    "", "Ana met Emma.", "AT&amp;T &lt;p&gt;", "3 < 4 and 5 > 2", "<Reuters> - Oslo", "a <- b -> c <3", "Use the <b> tag.",
    "</b> closes <b>", "Write to <ana@example.org> or <https://x.example/a>", "List<String> a; Map<a, b>", "<", "<p", "<pre",
    "<<a>>", "if a<b and c>d", "a </b> b </b>", "<?xml version='1.0'?><doc>a</doc>",
]  # fmt: skip


@pytest.mark.parametrize("body", RECOGNISED)
def test_html_is_recognised(body: str) -> None:
    """A beginning, a paragraph or line break, or an element that opens and closes tells."""
    assert looks_like_html(body)


@pytest.mark.parametrize("body", LEFT_ALONE)
def test_text_is_left_alone(body: str) -> None:
    """Though it has angle brackets, addresses, code or character references."""
    assert not looks_like_html(body)


@pytest.mark.parametrize("piece", ["<", "<a ", "<a", "</a>", "<b>", "<a" + "a" * 1000, "< a>", "<!", "<!--"])
def test_hostile_text_is_answered(piece: str) -> None:
    """300,000 characters of it: an expression that tries each beginning with each end would take hours."""
    assert looks_like_html(" x" + piece * (300_000 // len(piece))) is False
    assert looks_like_html(piece * (300_000 // len(piece)) + "<br>")


CANARY = "xyzzy"
SEGMENT_BYTES = 12

TEXTS = [
    (
        '<p>Angela Merkel met <a href="https://x.example/EmmanuelMacron">Emmanuel&nbsp;Macron</a> in <b>Par</b>is.</p>',
        "Angela Merkel met Emmanuel\xa0Macron in Paris.",
    ),
    ("<p>Ana met <a href='x>y'>Emma</a>.</p>", "Ana met Emma."),
    ("in <b>Par</b>is &amp; Berlin", "in Paris & Berlin"),
    ("One<p>two<div>three</div>four", "One\n\ntwo\n\nthree\n\nfour"),
    ("<ul>\n <li>a</li>\n <li>b\n</ul><table><tr><td>c<td>d</table>", "a\n\nb\n\nc\n\nd"),
    ("By Emma Brown<br>London (Reuters)<br/> <br>Text", "By Emma Brown\nLondon (Reuters)\n\nText"),
    ("<h1>\n\tA  B\r\n C </h1>", "A B C"),
    (
        "By Emma Brown\r\n \n<b>London</b>\n(Reuters)\n\nText\n<i>\nText",
        "By Emma Brown\n\nLondon (Reuters)\n\nText Text",
    ),
    ("a <b> b</b> <i>c</i>", "a b c"),
    ("<pre>\n a\n\tb</pre>c", "\n a\n\tb\n\nc"),
    ("a<pre><b>x  y</b></pre></pre>z  z", "a\n\nx  y\n\nz z"),
    ("<!DOCTYPE html><html><head><title>T &amp; t</title><style>p{}</style></head><body>a</body></html>", "a"),
    ("a<script>if (1<2) '<p>'</script>b<style>c</style>d<template><p>e</template>f<!-- g -->h<?i?>j", "abdfhj"),
    ("a<noscript><p>b</noscript>c<iframe>d</iframe>e<noembed>f</noembed>g", "ac eg"),
    ("a<svg><svg><text>b</text></svg>c<svg/></svg>d<img alt='e'>f", "a d f"),
    (
        "<svg><title/><defs><Style type='a' /></defs></svg>a<iframe src='b'/>c<script src=\"d\" />e<noscript/>f",
        "a c e f",
    ),
    ("<xmp><title/></xmp>a<titles/>b<iframe src=http://c/>d</iframe>e<script>'<style/>'</script>f", "<title/>ab ef"),
    ("a<video>b <p>c</video>d<video>e", "a d e"),
    ("a<script>b", "a"),
    ("a<select><option>b</select>c<textarea>d</textarea>e<object><p>f</object>g", "a c e g"),
    ("M&uuml;ller &#x1F600;&#65;&lt;&nbsp;&notit; &fjlig;", "Müller 😀A<\xa0¬it; fj"),
    ("a&#32;&#10; &NewLine;b&#9;c", "a b c"),
    ("&#0;&#xD800;&#x110000;&#99999999999;", "\ufffd" * 4),
    ("AT&T R&D &x; & &#; &amp", "AT&T R&D &x; & &#; &"),
    ("AT&am", "AT&am"),
    ("a < b, 3<4 <3 <", "a < b, 3<4 <3 <"),
    ("a <b", "a"),
    ("a <b href='c", "a"),
    ("a <!-- b", "a"),
    ("a</></ b>c<![CDATA[d]]>e", "ace"),
    ("S&</>S <b title='</>'>a</b><!-- </> -->b</>c", "S&S abc"),
    ("<xmp>a</> \0</xmp><plaintext>b</>", "a</> \0b</>"),
    ("<P>A<BR>B</P ><SCRIPT>c</ScRiPt >d", "A\nB\n\nd"),
    ("😀<b>😀</b>\ufeff\0a", "😀😀\ufeff\0a"),
    ("\u2028a\x0bb\x1cc\x85d", "\u2028a\x0bb\x1cc\x85d"),
    ("", ""),
    ("<p> <br>\n</p>&#32;", ""),
]


def slices(source: str, *words: str) -> list[str]:
    """The text of the source where these words are in its text."""
    text, source_map = read_html([source])
    ranges = [source_map.source_range(text.index(word), text.index(word) + len(word)) for word in words]
    return [source[start:end] for start, end in ranges]


@pytest.mark.parametrize(("source", "text"), TEXTS)
def test_the_text_is_what_a_reader_sees(source: str, text: str) -> None:
    """Tags, comments and elements that are not displayed are gone; blocks are paragraphs; references are decoded."""
    assert text == read_html([source])[0]


def test_a_slice_begins_with_the_first_character_and_ends_after_the_last() -> None:
    """Markup at its ends is no part of it, markup inside is, and a character reference is whole."""
    source = (
        '<p>Angela Merkel met <a href="E">Emmanuel&nbsp;Macron</a> and <i>M&uuml;ller</i> in <b>Par</b>is, B&eacute;'
    )
    found = slices(source, "Angela Merkel", "Emmanuel\xa0Macron", "Müller", "Paris", "Bé", "and")
    assert ["Angela Merkel", "Emmanuel&nbsp;Macron", "M&uuml;ller", "Par</b>is", "B&eacute;", "and"] == found
    assert ["Ana \n  Ribeiro"] == slices("<p>\n Ana \n  Ribeiro</p>", "Ana Ribeiro")


def test_a_reference_of_two_characters_is_mapped_as_a_whole() -> None:
    """There are few of them, and half of one is nothing in the source."""
    text, source_map = read_html(["a &fjlig;x"])
    assert "a fjx" == text
    assert (2, 9) == source_map.source_range(2, 3) == source_map.source_range(3, 4) == source_map.source_range(2, 4)
    assert (2, 4) == source_map.text_range(2, 9)


def test_a_range_of_another_source_is_answered_too() -> None:
    """A range that this source never gave is answered with some of its text, and raises nothing."""
    for blocks in ([], ["<p>"], ["<p>a&amp;b"]):
        text, source_map = read_html(blocks)
        for start, end in ((0, 1), (5, 6), (100, 200), (-5, 3)):
            assert text[slice(*source_map.text_range(start, end))] in text


def test_a_text_that_is_not_where_the_parser_says_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong offset would be worse than a dead letter."""
    tokens = list(tokenize("<b>Oslo</b>Rome", resolve_references=False))
    monkeypatch.setattr(html_text, "tokenize", lambda *_, **__: iter(tokens))
    assert "OsloRome" == read_html(["<i>Oslo</i>Rome"])[0]
    with pytest.raises(InvalidArticle, match="takes a text for another one"):
        read_html(["<b>Olso</b>Rome"])


def test_a_map_of_long_runs_is_small() -> None:
    """A segment per run, not per character."""
    text, source_map = read_html(["<p>" + "Words and words. " * 1000 + "</p><p>And <b>more</b> words"])
    assert 4 * SEGMENT_BYTES == source_map.size_bytes
    assert len(text) == source_map.length_chars


# ---- any HTML

WORDS = any_text(min_size=1, max_size=6).map(lambda text: re.sub(r"[<>& \t\n\f\r]", "", text) + "w")
REFERENCES = st.sampled_from(["&amp;", "&uuml;", "&#65;", "&#x1F600;", "&nbsp;", "&lt;"])
MARKUP = st.sampled_from([
    f"<b class='{CANARY}'>", "</b>", f"<!-- {CANARY} -->", f"<script>{CANARY}</script>", f'<a href="{CANARY}>">', "</a>",
    f"<style>{CANARY}</style>", f"<{CANARY}>", f"</{CANARY}>", f"<img alt={CANARY}>", f"<svg><g>{CANARY}</g></svg>",
])  # fmt: skip
BLOCKS = st.sampled_from([f"<p id={CANARY}>", "</p>", "</>", "<div>", "<li>", "</td>", "<br>", "\n\n", " "])
PIECES = st.lists(
    st.tuples(st.just("text"), WORDS)
    | st.tuples(st.just("reference"), REFERENCES)
    | st.tuples(st.just("markup"), MARKUP | BLOCKS),
    max_size=30,
)


def check_map(source: str, text: str, source_map: SourceMap) -> None:
    """Each visible character is in the source or is decoded from there, in order; every range comes back."""
    ranges = [(i, source_map.source_range(i, i + 1)) for i, each in enumerate(text) if not each.isspace()]
    for i, (start, end) in ranges:
        found = source[start:end]
        assert text[i] == found or (found[0] == "&" and text[i] in unescape(found)) or "\ufffd" == text[i], (i, found)
        left, right = source_map.text_range(start, end)
        assert left <= i < right
        assert (start, end) == source_map.source_range(left, right)
    assert all(one == other or one[1] <= other[0] for (_, one), (_, other) in pairwise(ranges))


@given(pieces=PIECES)
def test_the_words_come_through_and_no_markup_does(pieces: list[tuple[str, str]]) -> None:
    """The words are known here without a parser."""
    source = "".join(piece for _, piece in pieces)
    text, source_map = read_html([source])
    seen = "".join(unescape(piece) for kind, piece in pieces if kind != "markup")
    assert "".join(seen.split()) == "".join(text.split())
    assert CANARY not in text
    check_map(source, text, source_map)


@given(
    source=st.lists(
        st.sampled_from("<>&;/!-#x1 'p")
        | st.sampled_from(["<p>", "</>", "&amp", "<script>", "<svg>", "<xmp>", "-->"])
        | any_text()
    )
)
def test_any_text_is_read_and_mapped(source: list[str]) -> None:
    """Malformed markup is what the standard says it is, and positions hold."""
    joined = "".join(source)
    text, source_map = read_html([joined])
    check_map(joined, text, source_map)


@given(blocks=st.lists(PIECES.map(lambda pieces: "".join(piece for _, piece in pieces)), max_size=5))
def test_blocks_have_the_texts_that_they_have_alone(blocks: list[str]) -> None:
    """Joined as paragraphs; the map counts in the joined source."""
    text, source_map = read_html(blocks, "<sep>")
    alone = [read_html([block])[0] for block in blocks]
    assert "\n\n".join(filter(None, alone)) == text
    check_map("<sep>".join(blocks), text, source_map)


# ---- hostile HTML

SIZE = 50_000
HOSTILE = [
    "<div>", "</div>", "<p>a</p>", "a<b>", "<", "&", "&lt", "&#", "&#x", "&a", "<!--", "<![CDATA[", "</", "<a b=", '<a b="',
    "<script>", "<svg>", "<svg></svg>a", "</svg>", "<template>", "<select><video>", "<pre>a", "a  ", "a\n", "<br>",
    "<textarea>", "<title>", "<title/>", "<title '", "<?", "<!", "\0", "\ufeff", "😀<b>",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_html_makes_no_text_or_map_beyond_its_size(piece: str) -> None:
    """50,000 characters of it: nothing is raised, and nesting costs nothing."""
    for source in (
        piece * (SIZE // len(piece)),
        "Oslo" + piece * (SIZE // len(piece)) + "Rome",
        f"<p>{piece}" * 10_000,
    ):
        text, source_map = read_html([source])
        assert len(text) <= len(source)
        assert source_map.size_bytes <= 8 * len(source)
        assert source_map.length_chars == len(text)


def test_many_blocks_make_no_map_beyond_their_size() -> None:
    """As many as a record of a few megabytes can have."""
    blocks = ["a"] * 100_000
    text, source_map = read_html(blocks)
    assert "\n\n".join(blocks) == text
    assert source_map.size_bytes <= 2 * SEGMENT_BYTES * len(blocks)


def test_elements_that_are_skipped_cost_one_look_for_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """An element that opens 10,000 times looks for its closing tag once, or the time would grow with the square."""
    looks: list[str] = []
    finditer = re.finditer

    def noted(pattern: str, text: str, flags: int) -> Iterator[re.Match[str]]:
        looks.append(pattern)
        return finditer(pattern, text, flags)

    monkeypatch.setattr(re, "finditer", noted)
    read_html(["<svg></svg><video></video>" * 10_000])
    assert 2 == len(looks)


# ---- articles

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
    """The text of the source where a word of the body is."""
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
    """A body of white space is one too, unless there is a title."""
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
    """Bytes beyond the record are counted while the article is in flight."""
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
