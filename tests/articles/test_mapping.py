"""`FieldMapping`: where fields are, what id and optional fields may be; refusals name pointers and no content."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import any_text
from support.records import article_in

from enricher.errors import InvalidArticle
from enricher.worker.articles import MAX_ID_CHARS, METADATA_FIELDS, FieldMapping
from enricher.worker.articles.mapping import FIELDS, MAX_CHARS, MAX_NAME_CHARS, OPTIONAL_FIELDS, optional_text
from enricher.worker.commands.running import describe
from enricher.worker.records import Article, Headers, Partition, RawRecord
from enricher.worker.settings import Settings, given_settings
from enricher.worker.stats import Counters
from enricher.worker.wiring.formats import line_reader

LIMIT_CHARS = 1000
CANARY = "xyzzycanary"
USUAL = {"id": "a-1", "title": "Rain", "body": "Rain in Bergen."}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | any_text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=9,
)  # fmt: skip
documents = st.dictionaries(st.sampled_from([*FIELDS, "a", "b"]), json_values, max_size=9)


def raw(key: bytes | None = None, headers: Headers = ()) -> RawRecord:
    """A record; what is in its value is given to the mapping as a document."""
    return RawRecord(Partition("articles", 0), 0, key, b"{}", headers)


def mapped(document: object, mapping: FieldMapping, record: RawRecord | None = None, **more: Any) -> Article:  # noqa: ANN401
    """The article in a document, after JSON."""
    return mapping.article(orjson.loads(orjson.dumps(document)), record or raw(), LIMIT_CHARS, **more)


def refusal(document: object, mapping: FieldMapping, record: RawRecord | None = None) -> str:
    """The message with which a document is refused."""
    with pytest.raises(InvalidArticle) as caught:
        mapped(document, mapping, record)
    assert "decode" == caught.value.stage
    assert caught.value.__context__ is None, "what is chained may hold the document"
    return str(caught.value)


@pytest.mark.parametrize(
    ("fields", "document", "expected"),
    [
        (
            {"id": "/doc/ids/0", "title": "/doc/titles/0/text", "body": "/doc/paragraphs", "language": "/lang"},
            {
                "doc": {"ids": ["a-1", "b"], "titles": [{"text": "Rain"}], "paragraphs": ["Rain in", "Bergen."]},
                "lang": "en",
            },
            Article("a-1", "Rain", "Rain in\n\nBergen.", {"language": "en"}, body_separator="\n\n"),
        ),
        (
            {"id": "/a~1b", "body": "/m~0n", "source": "/agency/name", "url": "/"},
            {"a/b": "a-1", "m~n": "Rain in Bergen.", "title": "Rain", "agency": {"name": "A"}, "": "u"},
            Article("a-1", "Rain", "Rain in Bergen.", {"source": "A", "url": "u"}),
        ),
    ],
)
def test_fields_are_found_where_the_mapping_says(
    fields: dict[str, str], document: dict[str, Any], expected: Article
) -> None:
    """Nested, in lists and under odd names; a field that is not named is where it always was."""
    assert expected == mapped(document, FieldMapping(fields))


@given(
    document=documents,
    where=st.lists(st.sampled_from(["/a", "/b/a", "/a/0", "/b/c/a"]), min_size=7, max_size=7),
    body=st.sampled_from(["/b/a", "/a/*", "/a/*/b", "/b/c/*/a/0"]),
)
def test_nothing_but_invalid_article_leaves_it_for_any_document(
    document: dict[str, Any], where: list[str], body: str
) -> None:
    """Wherever the fields should be, and whatever is there; what is accepted can be written."""
    fields = dict(zip(FIELDS, where, strict=True)) | {"body": body}
    mapping = FieldMapping(fields, metadata={"m": "/a", "n": "/b/0"}, scalar_ids=True)
    try:
        found = mapped(document, mapping)
    except InvalidArticle:
        return
    texts = (found.id, found.title, found.body, *found.metadata.values())
    assert all(isinstance(text, str) for text in texts)
    assert orjson.dumps(texts)
    assert found.further is None or orjson.loads(found.further)


@pytest.mark.parametrize("name", ["id", "body"])
def test_an_article_that_lacks_a_mapped_field_is_refused_with_the_pointer(name: str) -> None:
    """Whoever reads the dead letter must see where the worker looked."""
    mapping = FieldMapping({name: "/content/0/there"})
    for document in ({}, {"content": None}, {"content": {"0": [CANARY]}}, {"content": [{"their": CANARY}]}):
        assert f"{name} is missing at /content/0/there" == refusal(USUAL | document, mapping)


def test_optional_fields_may_be_missing_wherever_they_are_mapped() -> None:
    """As without a mapping: not every article has a title or a language, and null is absent."""
    mapping = FieldMapping({"title": "/t", **{name: f"/m/{name}" for name in METADATA_FIELDS}})
    assert Article("a-1", "", "Rain in Bergen.", {}) == mapped(USUAL, mapping)
    nulls = {"t": None, "m": dict.fromkeys(METADATA_FIELDS)}
    assert Article("a-1", "", "Rain in Bergen.", {}) == mapped(USUAL | nulls, mapping)


@pytest.mark.parametrize("name", [name for name in FIELDS if name != "body"])
@pytest.mark.parametrize("wrong", [{CANARY: 1}, [CANARY]])
def test_a_mapped_field_of_the_wrong_type_is_refused_with_the_pointer(name: str, wrong: object) -> None:
    """At the top level and below, and never with what is there."""
    assert f"{name} is not a string at /x" == refusal(USUAL | {"x": wrong}, FieldMapping({name: "/x"}))
    assert f"{name} is not a string at /x/y" == refusal(USUAL | {"x": {"y": wrong}}, FieldMapping({name: "/x/y"}))


def test_paragraphs_are_joined_wherever_they_are() -> None:
    """Other things in the array are refused by the pointer."""
    mapping = FieldMapping({"body": "/x/y"})
    found = mapped(USUAL | {"x": {"y": ["Rain", "in Bergen."]}}, mapping)
    assert ("Rain\n\nin Bergen.", "\n\n") == (found.body, found.body_separator)
    message = refusal(USUAL | {"x": {"y": ["Rain", [CANARY]]}}, mapping)
    assert "body is an array with an item that is not a string at /x/y" == message
    assert "when it is joined" in refusal(USUAL | {"doc": {"blocks": [{"text": ""}] * 100_000}}, BLOCKS)


BLOCKS = FieldMapping({"body": "/doc/blocks/*/text"})


def test_a_body_may_be_the_texts_of_the_items_of_a_list() -> None:
    """In their order, joined like paragraphs; items without a text are left out, but an empty one is a paragraph."""
    blocks = [
        {"text": "Rain", "kind": "p"},
        {"url": CANARY},
        {"text": None},
        None,
        CANARY,
        [{"text": CANARY}],
        {"text": ""},
        {"text": "Snow"},
    ]
    found = mapped(USUAL | {"doc": {"blocks": blocks}}, BLOCKS)
    assert ("Rain\n\n\n\nSnow", "\n\n") == (found.body, found.body_separator)


@pytest.mark.parametrize("wrong", [7, True, {"deeper": CANARY}, [CANARY]])
def test_what_is_no_text_in_an_item_is_refused_with_the_pointer(wrong: object) -> None:
    """A body without one of its paragraphs would be enriched in silence."""
    message = refusal(USUAL | {"doc": {"blocks": [{"text": "Rain"}, {"text": wrong}]}}, BLOCKS)
    assert "body is an array with an item that is not a string at /doc/blocks/*/text" == message


@pytest.mark.parametrize("document", [{}, {"doc": None}, {"doc": {"blocks": None}}, {"doc": {"blocks": {"*": CANARY}}}])
def test_a_document_without_the_list_of_blocks_is_refused(document: dict[str, Any]) -> None:
    """Then the pointer is probably wrong, or the article is not what it seems."""
    expected = "body is missing at /doc/blocks/*/text: there is no list at /doc/blocks"
    assert expected == refusal(USUAL | document, BLOCKS)
    assert "body is missing at /x/*: there is no list at /x" == refusal(USUAL, FieldMapping({"body": "/x/*"}))


# ---- ids


def test_an_id_may_be_the_key_or_a_header() -> None:
    """The last header of a name counts, as in Kafka's own clients."""
    by_key, by_header = FieldMapping({"id": "key"}), FieldMapping({"id": "header:ce_id"})
    record = raw("ключ".encode(), (("ce_id", b"a"), ("other", b"b"), ("ce_id", b"c"), ("CE_ID", b"d")))
    assert "ключ" == mapped(USUAL, by_key, record).id
    assert "c" == mapped({"body": "Oslo"}, by_header, record).id


def test_a_cloud_event_in_binary_mode_is_an_article_with_headers() -> None:
    """A header that is missing, or that is no text, counts as such a field of a document."""
    where = {"id": "header:ce_id", "source": "header:ce_source", "published_at": "header:ce_time"}
    event = {"ce_id": b"e-1", "ce_source": b"/agency", "ce_time": b"2026-11-22T21:00:00Z"}
    record = raw(None, tuple(event.items()))
    expected = Article("e-1", "", "Oslo", {"source": "/agency", "published_at": "2026-11-22T21:00:00Z"})
    assert expected == mapped({"body": "Oslo", "source": "ignored"}, FieldMapping(where), record)
    assert {} == mapped({"body": "Oslo"}, FieldMapping(where), raw(None, (("ce_id", b"e-1"),))).metadata
    wrong = raw(None, (("ce_id", b"e-1"), ("ce_source", b"\xff"), ("ce_time", b"x" * 257)))
    found = mapped({"body": "Oslo"}, FieldMapping(where, drop_wrong=True), wrong)
    assert ({}, ("source", "published_at")) == (found.metadata, found.dropped)
    with pytest.raises(InvalidArticle, match="source is not a string at header:ce_source"):
        mapped({"body": "Oslo"}, FieldMapping(where), wrong)


@pytest.mark.parametrize(
    ("where", "record", "message"),
    [
        ("key", raw(), "id is missing at key"),
        ("header:x", raw(b"k", (("y", b"1"),)), "id is missing at header:x"),
        ("header:x", raw(b"k", (("x", b"1"), ("x", None))), "id is missing at header:x"),
        ("key", raw(b"\xff" + CANARY.encode()), "id is not UTF-8 at key"),
        ("header:x", raw(None, (("x", b"\xff"),)), "id is not UTF-8 at header:x"),
        ("key", raw(b""), "id is empty"),
        ("key", raw(b"x" * (MAX_ID_CHARS + 1)), "id has 513 characters, at most 512 are allowed"),
    ],
)
def test_a_key_or_header_that_is_no_id_is_refused_by_its_name(where: str, record: RawRecord, message: str) -> None:
    """An id in the document does not replace it: the settings say where it is."""
    assert message == refusal(USUAL, FieldMapping({"id": where}), record)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("0", "0"), ("-1", "-1"), ("18446744073709551615", "18446744073709551615"), ("true", "true"), ("false", "false"),
        ("-9223372036854775808", "-9223372036854775808"),
    ],
)  # fmt: skip
def test_numbers_and_booleans_are_ids_where_the_setting_says_so(number: str, text: str) -> None:
    """Written as in JSON, so that a JSON consumer's own conversion gives the same text."""
    document = orjson.loads(f'{{"id": {number}, "body": "Oslo"}}')
    assert text == FieldMapping(scalar_ids=True).article(document, raw(), LIMIT_CHARS).id
    with pytest.raises(InvalidArticle, match=r"^id is not a string: articles\.scalar_ids=true accepts"):
        FieldMapping(metadata={"m": "/m"}).article(document, raw(), LIMIT_CHARS)


@pytest.mark.parametrize(
    "number",
    [
        *map(
            orjson.loads, ["18446744073709551616", "-9223372036854775809", "4503599627370497.3", "1.5", "1e3", "1e300"]
        ),
        *(2**64, -(2**63) - 1, 10**400, float("nan"), float("inf"), float("-inf")),
    ],
)
def test_numbers_that_may_become_the_same_id_are_refused(number: float) -> None:
    """JSON keeps only a double of such a number; decoders of other formats may return numbers that JSON cannot hold."""
    with pytest.raises(InvalidArticle, match=r"^id is a number that is not whole, or has more than 64 bits at /n$"):
        FieldMapping({"id": "/n"}, scalar_ids=True).article(USUAL | {"n": number}, raw(), LIMIT_CHARS)


# ---- what else is kept


def test_metadata_of_the_settings_is_kept_under_its_names() -> None:
    """Any JSON; what the article lacks is left out, and null is a value."""
    mapping = FieldMapping(
        metadata={"desk": "/desk/name", "tags": "/tags", "n": "/n", "none": "/gone", "null": "/null"}
    )
    document = USUAL | {"desk": {"name": "Sport"}, "tags": ["a", {"b": 1}], "n": 1.5, "null": None}
    assert b'{"desk":"Sport","tags":["a",{"b":1}],"n":1.5,"null":null}' == mapped(document, mapping).further
    assert None is mapped(USUAL, mapping).further
    assert None is mapped(USUAL, FieldMapping({"id": "/id"})).further


def test_metadata_that_could_not_be_written_is_refused_by_its_name() -> None:
    """A reader takes 1024 levels and a writer 254: found only while writing, it would end the worker."""
    mapping = FieldMapping(metadata={"fine": "/fine", "deep": "/deep"})
    reason = "deep of articles.metadata cannot be written as JSON, or is nested too deeply"
    writable = []
    for levels in range(248, 258):
        document = USUAL | {"fine": 1, "deep": orjson.loads(b"[" * levels + b"]" * levels)}
        try:
            found = mapping.article(document, raw(), LIMIT_CHARS)
        except InvalidArticle:
            continue
        assert orjson.dumps({"metadata": orjson.loads(found.further or b"")})
        writable.append(levels)
    assert writable == list(range(248, writable[-1] + 1))
    for deep in (orjson.loads(b"[" * 1000 + b"]" * 1000), 2**64, "\ud83d", {1: 2}):
        with pytest.raises(InvalidArticle, match=reason):
            mapping.article(USUAL | {"deep": deep}, raw(), LIMIT_CHARS)


# ---- what a mapping may say


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"ident": "/id"}, "no field 'ident'; the fields are id, title, body, language"),
        ({"id": "uuid"}, "'uuid' is not a JSON Pointer"),
        ({"body": ""}, "'' is not a JSON Pointer"),
        ({"body": "/a~b"}, "write ~0 for ~"),
        ({"title": "key"}, "only id may be"),
        ({"body": "header:x"}, "never in a header"),
        ({"source": "header:"}, "the name of the header is missing"),
        ({"id": "header:"}, "the name of the header is missing"),
        ({"title": "/blocks/*/text"}, r"title cannot have \* in its pointer: only body"),
        ({"id": "/ids/*"}, r"id cannot have \*"),
        ({"body": "/blocks/*/spans/*/text"}, r"body can have one \* in its pointer"),
        ({"body": "/*/text"}, r"body has \* at the beginning of its pointer"),
    ],
)
def test_fields_that_cannot_be_are_refused(fields: dict[str, str], words: str) -> None:
    """At the start, not with the first article."""
    with pytest.raises(ValueError, match=words):
        FieldMapping(fields)


@pytest.mark.parametrize(
    ("name", "where", "words"),
    [
        ("", "/x", "the name of /x is empty"),
        ("x" * (MAX_NAME_CHARS + 1), "/x", "a name has 129 characters, at most 128"),
        ("\ud83d", "/x", "lone surrogate"),
        ("x", "key", "'key' is not a JSON Pointer"),
        ("x", "/tags/*", r"x cannot have \* in its pointer: only body"),
    ],
)
def test_metadata_that_cannot_be_is_refused(name: str, where: str, words: str) -> None:
    """A name that cannot be written would end the worker with the first article."""
    with pytest.raises(ValueError, match=words):
        FieldMapping(metadata={name: where})


OSLO = {"id": "a-1", "title": "Rain", "body": "Oslo"}
MAPPED = {name: f"/deep/{name}" for name in OPTIONAL_FIELDS}


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1_773_482_400, "2026-03-14T10:00:00Z"),
        (1_773_482_400.0, "2026-03-14T10:00:00Z"),
        (1_773_482_400_000, "2026-03-14T10:00:00Z"),
        (1_773_482_400_123, "2026-03-14T10:00:00.123Z"),
        (99_999_999_999, "5138-11-16T09:46:39Z"),
        (100_000_000_000, "1973-03-03T09:46:40Z"),
        (-1, "1969-12-31T23:59:59Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00Z"),
    ],
)
def test_a_number_is_a_time_in_seconds_or_milliseconds(number: float, text: str) -> None:
    """By its size, at both ends of each."""
    assert text == optional_text("published_at", number)


def test_zero_is_no_time() -> None:
    """Protobuf, and many publishers, write it for a time that is not set."""
    for mapping in (FieldMapping(), FieldMapping(MAPPED)):
        found = mapped(OSLO | {"published_at": 0, "deep": {"title": "Rain", "published_at": 0.0}}, mapping)
        assert Article("a-1", "Rain", "Oslo") == found


@pytest.mark.parametrize("number", [253_402_300_800_000, -62_135_596_800_001, 10**30, 1e300])
def test_a_time_outside_of_the_calendar_is_wrong(number: float) -> None:
    """Nanoseconds, for instance."""
    with pytest.raises(InvalidArticle, match=r"^published_at is outside of the years 1 to 9999 at /x$"):
        optional_text("published_at", number, " at /x")


@pytest.mark.parametrize("name", OPTIONAL_FIELDS)
@pytest.mark.parametrize("wrong", [True, 1.5, [], {}, "too long"], ids=str)
def test_an_article_is_read_without_a_wrong_field(name: str, wrong: object) -> None:
    """Wherever its fields are; it says which one is missing, and keeps the others."""
    others = dict.fromkeys(OPTIONAL_FIELDS, "x")
    fields = others | {name: "x" * (MAX_CHARS[name] + 1) if wrong == "too long" else wrong}
    kept = {each: text for each, text in others.items() if each != name}
    expected = Article("a-1", kept.pop("title", ""), "Oslo", kept, dropped=(name,))
    assert expected == mapped(OSLO | fields, FieldMapping(drop_wrong=True))
    assert expected == mapped({"id": "a-1", "body": "Oslo", "deep": fields}, FieldMapping(MAPPED, drop_wrong=True))
    for mapping, document in ((FieldMapping(), OSLO | fields), (FieldMapping(MAPPED), {**OSLO, "deep": fields})):
        with pytest.raises(InvalidArticle, match=f"^{name} "):
            mapped(document, mapping)


def test_needed_fields_are_never_dropped() -> None:
    """Without its id or body, an article is none; nor without its only text."""
    for wrong, reason in (({"id": 1}, "id is not a string"), ({"body": 1}, "body is not a string")):
        with pytest.raises(InvalidArticle, match=reason):
            mapped(OSLO | wrong, FieldMapping(drop_wrong=True))
    with pytest.raises(InvalidArticle, match="no visible character"):
        mapped(OSLO | {"title": 1, "body": ""}, FieldMapping(drop_wrong=True))


def test_the_setting_decides() -> None:
    """By default, a wrong field costs the field and not the article."""
    raw = RawRecord(Partition("t", 0), 0, None, orjson.dumps(OSLO | {"url": 7}))
    assert ("url",) == article_in(line_reader(Settings()).read(raw)).dropped
    strict = given_settings({"articles": {"wrong_optional": "dead_letter"}})
    with pytest.raises(InvalidArticle, match="url is not a string"):
        line_reader(strict).read(raw)


def test_the_summary_of_a_run_says_what_was_skipped_and_dropped() -> None:
    """A skipped input is published without a record: the parts add up to the whole. Dropped fields only if there are any."""
    counters = Counters(records=1, skipped=2)
    assert describe(counters).startswith("3 published (1 enriched, 0 dead letters, 0 tombstones, 2 skipped)")
    assert "optional" not in describe(counters)
    counters.dropped_fields.update(["url", "title", "url"])
    assert describe(counters).endswith("; optional fields dropped: 2 url, 1 title")
