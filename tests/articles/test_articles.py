"""Without settings: what is an article, what is not, and that nothing but `InvalidArticle` ever leaves it."""

from __future__ import annotations

import json
import sys
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import any_text

from enricher.errors import InvalidArticle
from enricher.worker.articles import MAX_CHARS
from enricher.worker.records import Article
from tools.worker_parts import decode_article

LIMIT_CHARS = 1000
CANARY = "xyzzycanary"


def decode(value: bytes) -> Article:
    """Decode with the limit that these tests share."""
    return decode_article(value, max_article_chars=LIMIT_CHARS)


def article(**fields: object) -> bytes:
    """Write an article that is valid but for `fields`; those that are `...` are left out."""
    document = {"id": "a-1", "title": "Rain", "body": "Rain in Bergen.", "other": CANARY, **fields}
    return json.dumps({name: value for name, value in document.items() if value is not ...}).encode()


def refusal(value: bytes) -> str:
    """Return the message with which `value` is refused. It reaches logs and headers, so it never has content."""
    with pytest.raises(InvalidArticle) as caught:
        decode(value)
    assert caught.value.stage == "decode"
    assert CANARY not in str(caught.value)
    return str(caught.value)


def test_article_keeps_its_texts_and_its_metadata() -> None:
    """Texts come out as they went in, and the metadata that the record repeats comes along."""
    metadata = {"language": "en", "source": "Agency", "url": "https://a.example", "published_at": "2026-03-14"}
    value = article(title=" Rain\n", body="Rén \U0001f68b", **metadata, words=3)
    assert Article("a-1", " Rain\n", "Rén \U0001f68b", metadata) == decode(value)


def test_paragraphs_are_joined_and_the_article_says_with_what() -> None:
    """Offsets count in the joined text, so consumers must be able to join theirs."""
    found = decode(article(body=["Rain in Bergen.", "", "Snow in Oslo."]))
    assert ("Rain in Bergen.\n\n\n\nSnow in Oslo.", "\n\n") == (found.body, found.body_separator)
    for paragraphs, body in (([], ""), ([""], ""), (["Oslo"], "Oslo")):
        assert (body, "\n\n") == ((found := decode(article(body=paragraphs))).body, found.body_separator)
    assert decode(article()).body_separator is None


def test_the_length_of_paragraphs_is_checked_before_they_are_joined() -> None:
    """A value of a megabyte can hold so many empty strings that their separators take sixteen."""
    assert decode(article(title="", body=["x"] * 334)).body == "\n\n".join("x" * 334)
    expected = "body has 1003 characters when it is joined, at most 1000 are allowed"
    assert expected == refusal(article(title="", body=["x"] * 335))
    assert "when it is joined" in refusal(article(body=[""] * 300_000))


@pytest.mark.parametrize(("name", "most"), MAX_CHARS.items())
def test_optional_fields_have_bounds(name: str, most: int) -> None:
    """Each optional field has a longest length in code points; the message tells how long it was, and nothing of it."""
    longest = decode_article(article(**{name: "\U0001f68b" * most}), max_article_chars=2 * MAX_CHARS["title"])
    assert "\U0001f68b" * most == longest.metadata.get(name, longest.title)
    assert f"{name} has {most + 1} characters, at most {most} are allowed" == refusal(
        article(**{name: "x" * (most + 1)})
    )


def test_length_is_counted_in_code_points_of_title_and_body_together() -> None:
    """An emoji is one character, and the title counts."""
    assert decode(article(title="\U0001f68b" * 400, body="x" * 600))
    message = refusal(article(title="\U0001f68b" * 400, body=CANARY.ljust(601)))
    assert message == "title and body have 1001 characters, at most 1000 are allowed"


@pytest.mark.parametrize(
    "text", ["", " \t\r\n", "\u00a0\u2003\u3000", "\u200b\u200d\u2060\ufeff", "\x00\x1b\x7f\x85", "\ue000"]
)
def test_article_without_a_visible_character_is_refused(text: str) -> None:
    """Separators and control, format and private characters are no text, in title and body together."""
    assert refusal(article(title=text, body=text)) == "title and body have no visible character"


def test_letters_and_digits_are_visible() -> None:
    """All of Unicode: what begins with one is not looked through."""
    letters = filter(str.isalnum, map(chr, range(sys.maxunicode + 1)))
    unlike = [letter for letter in letters if category(letter)[0] in "ZC"]
    assert unlike == []


@pytest.mark.parametrize("text", ["\U0001f389", "\u200b.", " " * 900 + "x", "\u0301", "中"])
def test_one_visible_character_is_enough(text: str) -> None:
    """Emoji, marks and punctuation are text, wherever they stand."""
    assert text == decode(article(title="", body=text)).body
    assert text == decode(article(title=text, body="")).title


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"\x00\x00\x00\x00\x07", id="nothing behind the schema id"),
        pytest.param(article() + b"{}", id="two documents"),
        pytest.param(b'{"id": "1", "body": "Oslo \xed\xa0\xbd"}', id="raw surrogate"),
        pytest.param(rb'{"id": "1", "body": "Oslo", "other": "\udc00"}', id="lone surrogate, unused field"),
        pytest.param(b'{"id": "1", "body": "Oslo", "other": NaN}', id="NaN"),
        pytest.param(b'{"a":' * 200_000, id="200 000 levels"),
        pytest.param("{'id': '1'}".encode("utf-16"), id="UTF-16"),
    ],
)
def test_value_must_be_json(value: bytes) -> None:
    """What a strict JSON parser refuses is refused, and never in another way."""
    assert refusal(value).startswith(
        ("value is not valid JSON: ", "value is not UTF-8", "value has a schema id but is not JSON")
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ('{"id": "1", "body": "Zürich"}'.encode("latin-1"), ("not UTF-8", "byte 22", "Latin-1")),
        (b"\x00\x00\x00\x00\x07\x02\x0eOslo", ("schema id but is not JSON", "Avro")),
        (b"Obj\x01\x04\x16avro.schema", ("an Avro file",)),
    ],
    ids=["Latin-1", "Avro of a registry", "Avro file"],
)
def test_another_format_is_called_by_its_name(value: bytes, words: tuple[str, ...]) -> None:
    """The reason says what to fix at the publisher."""
    assert all(word in refusal(value) for word in words), refusal(value)


@pytest.mark.parametrize(
    "before", [b"\x00\x00\x00\x00\x07", b"\x00{[\xff\xff", b"\xef\xbb\xbf", b"\x00\x00\x00\x00\x07\xef\xbb\xbf", b" \n"]
)
def test_what_may_stand_before_the_json_is_skipped(before: bytes) -> None:
    """A schema id of whatever bytes, a byte order mark and white space do no harm."""
    assert decode(article()) == decode(before + article())


@given(cut=st.integers(0, 200), junk=st.binary(max_size=3))
def test_message_of_broken_json_never_holds_content(cut: int, junk: bytes) -> None:
    """Wherever the JSON breaks, neither the message nor an error chained to it holds the text around it."""
    whole = article(id=CANARY, title=CANARY, body=CANARY, source=CANARY, other=CANARY)
    broken = whole[:cut] + junk + CANARY.encode()
    with pytest.raises(InvalidArticle) as caught:
        decode(broken)
    assert CANARY not in str(caught.value)
    assert caught.value.__context__ is None, "orjson's error holds the whole document"


@given(
    st.fixed_dictionaries(
        {"id": any_text(max_size=3), "body": any_text(max_size=9), "title": any_text(max_size=9) | st.none()}
    )
)
def test_accepted_texts_are_the_texts_that_were_sent(document: dict[str, str | None]) -> None:
    """Nothing is trimmed or normalised: offsets count in these very characters."""
    try:
        found = decode(json.dumps(document).encode())
    except InvalidArticle:
        return
    assert (document["id"], document["title"] or "", document["body"]) == (found.id, found.title, found.body)
    assert len(found.title) + len(found.body) <= LIMIT_CHARS
