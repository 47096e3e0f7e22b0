"""The doctor reads the newest articles as a worker would, and notices keys in several partitions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from zlib import crc32

import pytest
from commands.cli_runner import article

from enricher.errors import BrokerError
from enricher.operate.doctor import articles as checks
from enricher.operate.doctor.articles import KeyPartitions, murmur2
from enricher.operate.doctor.findings import Finding
from enricher.worker.records import Partition, RawRecord
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import load_settings

ELSEWHERE = {"uuid": "a", "headline": "Lisbon", "text": "Ana Ribeiro lives in Lisbon.", "desk": {"name": "world"}}
FIELDS = {"id": "/uuid", "title": "/headline", "body": "/text"}


def found(
    values: Sequence[object],
    monkeypatch: pytest.MonkeyPatch,
    fields: Mapping[str, str] | None = None,
    **more: object,
) -> Mapping[str, Finding]:
    """The findings by check, if these are the newest records."""
    raw = [
        RawRecord(Partition("articles", 0), offset, None, None if value is None else json.dumps(value).encode())
        for offset, value in enumerate(values)
    ]
    monkeypatch.setattr(checks, "newest_records", lambda *_: (1, raw))
    monkeypatch.setenv("ENRICHER_ARTICLES__FIELDS", json.dumps(fields or {}))
    monkeypatch.setenv("ENRICHER_ARTICLES__METADATA", json.dumps(more.get("metadata", {})))
    findings = {finding.check: finding for finding in checks.article_findings(load_settings(), Watchdog().guard)}
    assert "ok" == findings.pop("one partition per key").verdict
    findings.pop("keys of articles", None)
    return findings


def test_articles_that_can_be_read_are_counted_without_tombstones(monkeypatch: pytest.MonkeyPatch) -> None:
    """One finding, and nothing to do."""
    findings = found([article("a"), None, article("b")], monkeypatch)
    assert {"the newest articles": "2 of the newest 2 records of 'articles' can be read"} == {
        check: finding.seen for check, finding in findings.items()
    }


def test_delete_events_are_left_out_like_tombstones(monkeypatch: pytest.MonkeyPatch) -> None:
    """They become no dead letters."""
    monkeypatch.setenv("ENRICHER_ARTICLES__DELETED", '{"field": "/op", "values": ["d"]}')
    findings = found([article("a"), {"op": "d", "id": "b"}], monkeypatch)
    assert ["1 of the newest 1 records of 'articles' can be read"] == [each.seen for each in findings.values()]


def test_what_becomes_a_dead_letter_is_counted_by_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual mistake: articles of another layout without `articles.fields`."""
    finding = found([ELSEWHERE, ELSEWHERE, article("a")], monkeypatch)["the newest articles"]
    assert "warn" == finding.verdict
    assert "1 of the newest 3 records of 'articles' can be read; 2 x id is missing" == finding.seen
    assert "warn" == found([ELSEWHERE], monkeypatch, FIELDS | {"body": "/txt"})["the newest articles"].verdict
    assert "ok" == found([ELSEWHERE], monkeypatch, FIELDS)["the newest articles"].verdict


def test_a_pointer_that_finds_nothing_anywhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Optional fields may be absent from an article, but hardly from all."""
    wrong = FIELDS | {"title": "/headlin", "language": "/lang"}
    finding = found([ELSEWHERE], monkeypatch, wrong, metadata={"section": "/desk/nam", "desk": "/desk"})[
        "mapped fields"
    ]
    assert "warn" == finding.verdict
    assert finding.seen.endswith(
        "articles.fields: title at /headlin, articles.fields: language at /lang, articles.metadata: section at /desk/nam"
    )


def test_a_body_that_no_article_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong name behind a `*` makes no dead letter where articles have titles, so nothing else would tell."""
    blocks = [{"id": "a", "title": "Lisbon", "blocks": [{"text": "Ana Ribeiro lives in Lisbon."}, {"url": "/a.jpg"}]}]
    finding = found(blocks, monkeypatch, {"body": "/blocks/*/txt"})["mapped fields"]
    assert "in none of 1 articles: articles.fields: body at /blocks/*/txt" == finding.seen
    assert "mapped fields" not in found(blocks, monkeypatch, {"body": "/blocks/*/text"})


def test_html_that_the_settings_call_text_is_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tags would be read as words; with the setting there is nothing to say."""
    html = [article("a") | {"body": "<p>Ana Ribeiro lives in Lisbon.</p>"}, article("b")]
    finding = found(html, monkeypatch)["bodies"]
    assert "warn" == finding.verdict
    assert "1 of 2 articles look like HTML, but articles.body_format is text" == finding.seen
    assert "pip install 'kafka-enricher[html]'" in finding.advice
    assert "bodies" not in found([article("a")], monkeypatch)
    monkeypatch.setenv("ENRICHER_ARTICLES__BODY_FORMAT", "auto")
    assert "bodies" not in found(html, monkeypatch)


def test_a_topic_that_does_not_answer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The right was asked about before, so this is about the brokers' addresses."""

    def silent(*_: object) -> None:
        raise BrokerError("no answer")

    monkeypatch.setattr(checks, "newest_records", silent)
    (finding,) = checks.article_findings(load_settings(), Watchdog().guard)
    assert ("FAIL", "no answer", True) == (finding.verdict, finding.seen, "advertised" in finding.advice)


def test_keys_in_two_input_topics_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing keeps the order of their records; keys that are in one topic each are right."""
    monkeypatch.setenv("ENRICHER_KAFKA__INPUT_TOPICS", '["articles", "now"]')

    def finding(*keys_now: bytes) -> Finding:
        keys = {"articles": [b"a", b"b"], "now": keys_now}
        monkeypatch.setattr(checks, "newest_records", lambda _, topic: (1, [record(topic, key) for key in keys[topic]]))
        *_, last = checks.article_findings(load_settings(), Watchdog().guard)
        assert "one input topic per key" == last.check
        return last

    def record(topic: str, key: bytes) -> RawRecord:
        return RawRecord(Partition(topic, 0), 0, key, None)

    assert "ok" == finding(b"c").verdict
    shared = finding(b"c", b"b")
    assert ("warn", "1 of 3 keys have records in several input topics, among the newest records") == (
        shared.verdict,
        shared.seen,
    )


PARTITIONS = 8


def noted(places: list[tuple[bytes, int]]) -> KeyPartitions:
    """What is counted after these records."""
    keys = KeyPartitions(PARTITIONS)
    for key, partition in places:
        keys.note(key, partition)
    return keys


def by_java(number: int) -> tuple[bytes, int]:
    """The key of this number where Java's clients put it."""
    key = b"k%d" % number
    return key, murmur2(key) % PARTITIONS


def by_librdkafka(number: int) -> tuple[bytes, int]:
    """The key of this number where librdkafka's clients put it by default."""
    key = b"k%d" % number
    return key, crc32(key) % PARTITIONS


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    ],
)
def test_murmur2_is_that_of_kafka(key: bytes, expected: int) -> None:
    """The answers are those of Kafka's own test, `UtilsTest.testMurmur2`; partitions use 31 bits of them."""
    assert expected & 0x7FFF_FFFF == murmur2(key)


def test_one_partitioner_for_all_is_nothing_to_warn_about() -> None:
    """Each key is in one partition, however often it comes; what has no key cannot be in the wrong place."""
    keys = noted([by_java(number % 100) for number in range(500)])
    keys.note(None, 3)
    assert (100, 0, 0) == (keys.keys, keys.in_several, keys.from_crc32)


def test_keys_of_two_partitioners_are_counted_once_each() -> None:
    """In whichever order they come; a key that both put into the same partition is no harm."""
    places = [by_java(number) for number in range(200)] + [by_librdkafka(number) for number in range(50)] * 3
    apart = sum(by_java(number) != by_librdkafka(number) for number in range(50))
    for order in (places, places[::-1]):
        keys = noted(order)
        assert (200, apart, apart) == (keys.keys, keys.in_several, keys.from_crc32)
    assert f"{apart} of 200 keys have records in several partitions; {apart} have one where CRC32" in str(keys)


def test_a_partitioner_that_nobody_knows_is_not_taken_for_librdkafkas() -> None:
    """One of eight keys lies where CRC32 puts it by chance."""
    keys = noted([(b"k%d" % number, number % PARTITIONS) for number in range(400)])
    assert (400, 0, 0) == (keys.keys, keys.in_several, keys.from_crc32)
    assert "CRC32" not in str(keys)
