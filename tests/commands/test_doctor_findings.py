"""The doctor reads the newest articles as a worker would, notices keys in several partitions, and asks the registry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from commands.cli_runner import article
from support.schema_registry import Behaviour, Registry, hang_up, serving, status

from enricher.errors import BrokerError
from enricher.operate.doctor import articles as checks
from enricher.operate.doctor.articles import KeyPartitions
from enricher.operate.doctor.broker import registry_findings
from enricher.operate.doctor.findings import Finding, exit_code
from enricher.worker.articles import record_writer
from enricher.worker.records import Partition, RawRecord
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import load_settings
from enricher.worker.wiring.formats import subject_of

ELSEWHERE = {"uuid": "a", "headline": "Lisbon", "text": "Ana Ribeiro lives in Lisbon.", "desk": {"name": "world"}}
FIELDS = {"id": "/uuid", "title": "/headline", "body": "/text"}
BLOCKS = {"id": "a", "title": "Lisbon", "blocks": [{"text": "Ana Ribeiro lives in Lisbon."}, {"url": "/a.jpg"}]}
HTML = article("a") | {"body": "<p>Ana Ribeiro lives in Lisbon.</p>"}


def found(values: Sequence[object], monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Finding]:
    """The findings by check, if these are the newest records."""
    raw = [
        RawRecord(Partition("articles", 0), offset, None, None if value is None else json.dumps(value).encode())
        for offset, value in enumerate(values)
    ]
    monkeypatch.setattr(checks, "newest_records", lambda *_: raw)
    findings = {finding.check: finding for finding in checks.article_findings(load_settings(), Watchdog().guard)}
    assert "ok" == findings.pop("one partition per key").verdict
    findings.pop("keys of articles", None)
    return findings


CASES: dict[str, tuple[list[object], dict[str, object], str, str, str]] = {
    "tombstones are not counted": (
        [article("a"), None, article("b")], {},
        "the newest articles", "ok", "2 of the newest 2 records of 'articles' can be read",
    ),
    "delete events are left out like tombstones": (
        [article("a"), {"op": "d", "id": "b"}], {"deleted": {"field": "/op", "values": ["d"]}},
        "the newest articles", "ok", "1 of the newest 1 records of 'articles' can be read",
    ),
    "what becomes a dead letter is counted by its reason": (
        [ELSEWHERE, ELSEWHERE, article("a")], {},
        "the newest articles", "warn", "1 of the newest 3 records of 'articles' can be read; 2 x id is missing",
    ),
    "one wrong field is enough": ([ELSEWHERE], {"fields": FIELDS | {"body": "/txt"}}, "the newest articles", "warn", ""),
    "with the right fields there is nothing to do": ([ELSEWHERE], {"fields": FIELDS}, "the newest articles", "ok", ""),
    "pointers that find nothing anywhere are named": (
        [ELSEWHERE], {"fields": FIELDS | {"title": "/headlin", "language": "/lang"},
                      "metadata": {"section": "/desk/nam", "desk": "/desk"}},
        "mapped fields", "warn",
        "title at /headlin, articles.fields: language at /lang, articles.metadata: section at /desk/nam",
    ),
    "a body that no article has is named, though titles make no dead letter": (
        [BLOCKS], {"fields": {"body": "/blocks/*/txt"}},
        "mapped fields", "warn", "in none of 1 articles: articles.fields: body at /blocks/*/txt",
    ),
    "a body of blocks is found": ([BLOCKS], {"fields": {"body": "/blocks/*/text"}}, "mapped fields", "", ""),
    "HTML that the settings call text is pointed out": (
        [HTML, article("b")], {},
        "bodies", "warn", "1 of 2 articles look like HTML, but articles.body_format is text",
    ),
    "text is text": ([article("a")], {}, "bodies", "", ""),
    "HTML that the settings know is right": ([HTML, article("b")], {"body_format": "auto"}, "bodies", "", ""),
}  # fmt: skip
"""The newest values, settings of articles, a check, its verdict and the end of what it has seen; "" where there is none."""


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_newest_articles_are_read_as_a_worker_would(
    case: tuple[list[object], dict[str, object], str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual mistake is articles of another layout; an optional field may be absent, but hardly from all articles."""
    values, settings, check, verdict, seen = case
    for name, value in settings.items():
        text = value if isinstance(value, str) else json.dumps(value)
        monkeypatch.setenv(f"ENRICHER_ARTICLES__{name.upper()}", text)
    finding = found(values, monkeypatch).get(check)
    assert verdict == (finding.verdict if finding else "")
    assert finding is None or finding.seen.endswith(seen)


def test_a_topic_that_does_not_answer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The right was asked about before, so this is about the brokers' addresses."""

    def silent(*_: object) -> None:
        raise BrokerError("no answer")

    monkeypatch.setattr(checks, "newest_records", silent)
    (finding,) = checks.article_findings(load_settings(), Watchdog().guard)
    assert ("FAIL", "no answer", True) == (finding.verdict, finding.seen, "advertised" in finding.advice)


@pytest.mark.parametrize(("now", "verdict", "shared"), [((b"c",), "ok", 0), ((b"c", b"b"), "warn", 1)])
def test_keys_in_two_input_topics_are_noticed(
    now: Sequence[bytes], verdict: str, shared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing keeps the order of their records; keys that are in one topic each are right."""
    monkeypatch.setenv("ENRICHER_KAFKA__INPUT_TOPICS", '["articles", "now"]')
    keys = {"articles": [b"a", b"b"], "now": now}

    def newest(_settings: object, topic: str) -> list[RawRecord]:
        return [RawRecord(Partition(topic, 0), 0, key, None) for key in keys[topic]]

    monkeypatch.setattr(checks, "newest_records", newest)
    *_, last = checks.article_findings(load_settings(), Watchdog().guard)
    assert ("one input topic per key", verdict) == (last.check, last.verdict)
    assert not shared or f"{shared} of 3 keys have records in several input topics" in last.seen


def test_keys_in_several_partitions_are_counted() -> None:
    """Each once, however often it changes its partition; what has no key cannot be in the wrong place."""
    counted = KeyPartitions()
    for key, partition in (
        (b"a", 0),
        (b"b", 1),
        (b"a", 1),
        (b"b", 1),
        (b"a", 0),
        (b"c", 1),
        (b"c", 0),
        (None, 3),
        (None, 4),
    ):
        counted.note(key, partition)
    assert (3, 2) == (len(counted.digests), counted.in_several)


@pytest.fixture
def schemas(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Registry]:
    """A registry that the settings name."""
    with serving() as serves:
        monkeypatch.setenv("ENRICHER_REGISTRY__URL", serves.url)
        monkeypatch.setenv("ENRICHER_REGISTRY__CACHE_DIR", str(tmp_path))
        monkeypatch.setattr("enricher.worker.wiring.formats.REGISTRY_TIMEOUT_S", 1.0)
        yield serves


def asked() -> Mapping[str, Finding]:
    """The findings about the registry, by check."""
    return {finding.check: finding for finding in registry_findings(load_settings())}


@pytest.mark.parametrize(
    ("behaviour", "advice"),
    [
        *((each, "") for each in (hang_up, status(500), status(200))),
        (status(401), "basic.auth.user.info"),
    ],
)
def test_a_registry_that_does_not_answer_as_one_fails(schemas: Registry, behaviour: Behaviour, advice: str) -> None:
    """The worker would wait; the exit code is that of an absent broker. Wrong credentials are named by their property."""
    assert schemas.url
    schemas.behaviour = behaviour
    findings = [*asked().values()]
    assert ["FAIL"] == [finding.verdict for finding in findings]
    assert 4 == exit_code(findings)
    assert advice in findings[0].advice


def test_the_schema_of_records_is_found_or_said_how_to_register(
    schemas: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its version and id; without it the worker would not start."""
    monkeypatch.setenv("ENRICHER_OUTPUT__FORMAT", "avro")
    subject = subject_of(load_settings())
    missing = asked()[f"subject {subject}"]
    assert ("FAIL", True) == (missing.verdict, "register" in missing.advice)
    schema = record_writer("avro").schema
    assert schema is not None
    schemas.add(subject, schema.type, schema.text, 5)
    assert "has the schema of records: version 1, id 5" == asked()[f"subject {subject}"].seen
