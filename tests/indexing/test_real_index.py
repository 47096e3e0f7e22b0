"""A real OpenSearch: its template, the documented queries, the page of the demo, verification, and indexers before it."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import httpx2
import orjson
import pytest
from commands.cli_runner import run
from indexing.stage import Publishers, Stage, article, make_stage
from kafka.harness import headers_of
from support.operating import commit, write
from support.patience import PATIENCE_S, wait_until
from support.reading import read_all
from support.topics import Topics

from enricher.errors import SettingsError
from enricher.indexing.bulk_writer import bulk_lines
from enricher.indexing.index_documents import Document, DocumentMaker
from enricher.indexing.search_clients import open_index
from enricher.indexing.search_index import SearchIndex
from enricher.worker.records import Partition, RawRecord
from enricher.worker.settings import IndexSettings
from tools import ROOT
from tools.demo.search.server import SearchPage
from tools.kafka import Cluster

pytestmark = pytest.mark.broker

Record = dict[str, Any]
PAGE = (ROOT / "deploy" / "search-index.md").read_text(encoding="utf-8")
QUERIES: dict[str, Any] = {
    heading.partition("\n")[0]: json.loads(query)
    for heading, query in re.findall(r"^### (.*?)^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
}
"""The queries of the page, by their headings."""
EXAMPLES = sorted((ROOT / "schemas" / "examples" / "enriched-record.v1" / "valid").glob("*.json"))
CATALOGUE = {
    ("PER", "Barack Obama"): ("Q76", "Barack Obama"),
    ("PER", "Obama"): ("Q76", "Barack Obama"),
    ("LOC", "America"): ("Q30", "United States"),
    ("ORG", "NASA"): ("Q23548", "National Aeronautics and Space Administration"),
}


class Index:
    """An index with the installed template, and requests to it."""

    def __init__(self, search_url: str) -> None:
        self.name = f"articles-{uuid.uuid4().hex[:8]}"
        self.environment = {"ENRICHER_INDEX__URL": search_url, "ENRICHER_INDEX__NAME": self.name}
        self._client = httpx2.Client(base_url=search_url, timeout=PATIENCE_S)
        installed = run("index", "template", "--install", env=self.environment)
        assert 0 == installed.exit_code, installed.exception
        self.request("PUT", f"/{self.name}").raise_for_status()

    def request(self, method: str, path: str, body: Any = None) -> httpx2.Response:  # noqa: ANN401  JSON
        """One request."""
        return self._client.request(method, path, json=body)

    def write(self, documents: Iterable[Document]) -> None:
        """Index documents as the indexer does."""
        headers = {"Content-Type": "application/x-ndjson"}
        answer = self._client.post(f"/{self.name}/_bulk?refresh=true", content=bulk_lines(documents), headers=headers)
        assert not answer.json()["errors"], answer.text[:1000]

    def search(self, query: Any) -> Any:  # noqa: ANN401  JSON
        """The answer to a query."""
        return self.request("POST", f"/{self.name}/_search", query).raise_for_status().json()


def document(record: Record, version: int = 1) -> Document:
    """What the indexer makes of a record."""
    headers = (("enricher.version", b"%d" % version), ("enricher.source.topic", b"articles"))
    raw = RawRecord(Partition("entities", 0), 0, str(record["id"]).encode(), json.dumps(record).encode(), headers)
    return DocumentMaker().document(raw)


def record(name: str, day: int, body: str, *mentions: tuple[str, str, float]) -> Record:
    """The record of an article of that day of October 2013; label, text and score of each mention, in their order."""
    entities: list[Record] = []
    for label, text, score in mentions:
        start = body.index(text, entities[-1]["end"] if entities else 0)
        place: Record = {"field": "body", "start": start, "end": start + len(text)}
        entities.append({**place, "text": text, "label": label, "score": score})
        if (label, text) in CATALOGUE:
            entry, catalogue_name = CATALOGUE[label, text]
            entities[-1] |= {"id": entry, "ids": [{"id": entry, "match": "name"}], "catalogue_name": catalogue_name}
    article = {"id": name, "title": name.title(), "body": body}
    common = {"schema_version": 1, "id": name, "published_at": f"2013-10-{day:02}T12:00:00Z", "article": article}
    return {**common, "entities": entities, "catalogue": {"digest": "sha256:5f", "generation": 1}}


RECORDS = [
    record(
        *("visit", 14, "Barack Obama spoke in America, beside NASA."),
        *(("PER", "Barack Obama", 0.99), ("LOC", "America", 0.95), ("ORG", "NASA", 0.9)),
    ),
    record(
        *("return", 15, "Obama left America for Cuba. Obama slept."),
        *(("PER", "Obama", 0.9), ("LOC", "America", 0.6), ("LOC", "Cuba", 0.95), ("PER", "Obama", 0.9)),
    ),
    record(
        *("launch", 19, "NASA and ESA launch from Florida, in America."),
        *(("ORG", "NASA", 0.9), ("ORG", "ESA", 0.9), ("LOC", "Florida", 0.95), ("LOC", "America", 0.95)),
    ),
    record("firm", 20, "Obama is a firm in Cuba.", ("ORG", "Obama", 0.9), ("LOC", "Cuba", 0.7)),
]
"""Four articles, of which the last is not of the week, and names a firm like a person."""


@pytest.fixture(scope="module")
def index(search_url: str) -> Index:
    """Their index."""
    index = Index(search_url)
    index.write(map(document, RECORDS))
    return index


COUNTED = {
    "The top organisations of a week": ("organisations", [("NASA", 2), ("ESA", 1)]),
    "Entities beside each other": ("places", [("America", 2), ("Florida", 1)]),
    "Entries of a catalogue beside each other": (
        "entries",
        [
            ("Barack Obama\tQ76", 2),
            ("United States\tQ30", 2),
            ("National Aeronautics and Space Administration\tQ23548", 1),
        ],
    ),
    "How often something is mentioned": ("entities.sure.names", [("America", 2), ("Cuba", 1), ("Florida", 1)]),
}
"""The headings of queries that count, with the aggregation and its counts: by articles, the last one by sure mentions."""


@pytest.mark.parametrize("heading", COUNTED)
def test_a_query_of_the_page_counts(index: Index, heading: str) -> None:
    """The most frequent first."""
    path, expected = COUNTED[heading]
    found = index.search(QUERIES[heading])["aggregations"]
    for name in path.split("."):
        found = found[name]
    assert expected == [(each["key"], each["doc_count"]) for each in found["buckets"]]


def test_the_other_queries_of_the_page_find_articles_and_places(index: Index) -> None:
    """Both facets of one article; and every mention by one of the names, whose offsets cut it out of what was found."""
    both, by_name = (QUERIES[heading] for heading in QUERIES if heading not in COUNTED)
    assert {"visit"} == ids(index.search(both))
    found = []
    for hit in index.search(by_name)["hits"]["hits"]:
        places = [each["_source"] for each in hit["inner_hits"]["entities"]["hits"]["hits"]]
        found += [(hit["_id"], hit["_source"][each["field"]][each["start"] : each["end"]]) for each in places]
    assert [("return", "Obama"), ("return", "Obama"), ("visit", "Barack Obama")] == sorted(found)


def ids(answer: Any) -> set[str]:  # noqa: ANN401  JSON
    """The documents that were found."""
    return {hit["_id"] for hit in answer["hits"]["hits"]}


def test_the_page_of_the_demo_finds_words_and_marks_entities(index: Index) -> None:
    """In the articles of the index."""
    with SearchPage(index.environment["ENRICHER_INDEX__URL"], index.name) as page:
        html = httpx2.get(page.url, params={"q": "slept"}, timeout=PATIENCE_S).text
        everything = httpx2.get(page.url, timeout=PATIENCE_S).text
    assert "1 article," in html
    assert '<mark class="PER"' in html
    assert "4 articles," in everything


def test_the_index_takes_every_example_of_a_record(search_url: str) -> None:
    """Heads of all kinds, odd dates, metadata of any shape: the mapping refuses none and learns only labels."""
    index = Index(search_url)
    examples = [json.loads(path.read_bytes()) for path in EXAMPLES]
    assert len(examples) > 3
    odd = {
        "id": "odd",
        "published_at": "Tuesday last",
        "metadata": {"desk": 7, "deep": {"a": [True, None, {"b": "c"}]}},
        "url": "u" * 8_192,
        "unknown": {"x": 1},
        "entities": [{"label": "PER", "text": "p" * 40_000, "field": "title", "start": 0, "end": 1, "score": 0.5}],
    }
    same = {**odd, "metadata": {"desk": {"now": "an object"}}, "unknown": "text", "id": "same"}
    index.write(document({**record, "id": f"{number}"}) for number, record in enumerate([*examples, odd, same]))
    mapping = index.request("GET", f"/{index.name}/_mapping").json()[index.name]["mappings"]["properties"]
    assert "unknown" not in mapping
    assert "half_float" == mapping["entities"]["properties"]["score"]["type"]
    assert {"nested"} == {mapping[name]["type"] for name in ("entities", "classifications", "regressions")}
    assert "long" == mapping["version"]["type"]
    assert 1 == len(ids(index.search({"query": {"term": {"metadata.deep.a.b": "c"}}})))


def test_a_template_is_printed_without_any_server() -> None:
    """It can be edited, and installed with any client; for Elasticsearch it has that product's type for any object."""
    printed = json.loads(run("index", "template", env={"ENRICHER_INDEX__NAME": "news"}).stdout)
    assert ["news", "news-*"] == printed["index_patterns"]
    assert "flat_object" == printed["template"]["mappings"]["properties"]["metadata"]["type"]
    other = json.loads(run("index", "template", env={"ENRICHER_INDEX__PRODUCT": "elasticsearch"}).stdout)
    assert "flattened" == other["template"]["mappings"]["properties"]["metadata"]["type"]


def test_a_deleted_document_stays_deleted(search_url: str) -> None:
    """Until an index with a short memory takes an older write, the control; that of the template refuses it all the time."""
    index, control = Index(search_url), Index(search_url)
    control.request("PUT", f"/{control.name}/_settings", {"index": {"gc_deletes": "1ms"}}).raise_for_status()
    for each in (index, control):
        each.request("DELETE", f"/{each.name}/_doc/a?version_type=external_gte&version=9")

    def older(each: Index) -> int:
        each.request("POST", f"/{each.name}/_refresh")
        return each.request("PUT", f"/{each.name}/_doc/a?version_type=external_gte&version=5", {"id": "a"}).status_code

    def control_has_forgotten() -> bool:
        assert 409 == older(index)
        return older(control) == 201

    wait_until(control_has_forgotten, PATIENCE_S, "the control has forgotten the delete")
    assert 409 == older(index)


def test_a_real_index_is_verified(search_url: str, topics: Topics) -> None:
    """More documents than a page of the index has; right at first, and then wrong in three ways."""
    index = Index(search_url)
    records: list[Record] = [{"id": f"a-{number}", "entities": []} for number in range(1_200)]
    write(
        topics.bootstrap_servers,
        topics.output,
        (
            {
                "key": record["id"].encode(),
                "value": json.dumps(record).encode(),
                "headers": [("enricher.version", b"7")],
            }
            for record in records
        ),
    )
    write(topics.bootstrap_servers, topics.output, [{"key": b"gone", "headers": [("enricher.version", b"8")]}])
    commit(topics.bootstrap_servers, f"{topics.group}.index", topics.output, dict.fromkeys(range(4), 10**6))
    index.write(document(record, 7) for record in records)

    def verified() -> tuple[int, dict[str, int]]:
        result = run("index", "verify", "--json", env={**topics.environment, **index.environment})
        report = json.loads(result.stdout)
        return result.exit_code, {each["kind"]: each["count"] for each in report["differences"]}

    assert (0, {}) == verified()
    index.request("DELETE", f"/{index.name}/_doc/a-3")
    index.write([document({"id": "gone", "entities": []}, 2), document({"id": "nobody", "entities": []})])
    assert (8, {"missing": 1, "came back": 1, "surplus": 1}) == verified()


@pytest.fixture
def stage(broker: Cluster, search_url: str) -> Stage:
    """Topics and a real index of their own."""
    return make_stage(broker.bootstrap_servers, search_url)


def opened(stage: Stage, url: str) -> SearchIndex:
    """The index of the stage."""
    return open_index(IndexSettings(url=url, name=stage.topics.group))


def test_one_record_of_500_does_not_fit_and_the_rest_is_indexed(stage: Stage, search_url: str) -> None:
    """Updates, deletions, older versions and odd ids too: the index holds the newest of each key."""
    publishers = Publishers()
    odd = [publishers.write(key, article(key)) for key in ("k" * 508 + "-601", 'a\n\x00\t"\\\u2028/../é-602')]
    records = [publishers.write(f"key-{number}", article(f"key-{number}", number)) for number in range(480)]
    bad = publishers.write("key-481", {**article("key-481"), "number": "Angela Merkel"})
    gone = [publishers.write(f"key-{number}", None) for number in (3, 4, 1_000)]
    again = publishers.write("key-5", article("key-5", 5))
    stage.publish([*odd, *records[:200], bad, *records[200:], *gone, again, *records[:15]])
    with stage.indexer("--until-caught-up", index__max_batch_documents="500") as indexer:
        assert 0 == indexer.wait(PATIENCE_S)
    expected = publishers.expected()
    expected.pop("key-481")
    with closing(opened(stage, search_url)) as index:
        index.refresh()
        assert expected == dict(index.versions())
        noted = (index.meta() or {})["enricher"]
    assert (stage.topics.input, 0) == (noted["input_topic"], noted["epoch"])
    [letter] = read_all(stage.topics.bootstrap_servers, stage.letters)
    headers = headers_of(letter)
    assert (b"key-481", bad.record) == (letter.key(), orjson.loads(letter.value() or b""))
    assert headers["enricher.version"] == b"%d" % bad.version
    assert headers["enricher.index.error.type"] in {b"mapper_parsing_exception", b"document_parsing_exception"}
    assert headers["enricher.index.error.message"] == b"the index answers with status 400 in the field 'number'"
    assert headers["enricher.index.source.partition"] == b"1"
    assert not any(b"Merkel" in (value or b"") for value in headers.values())


def test_an_alias_of_several_indices_is_refused(stage: Stage, search_url: str) -> None:
    """After a rollover a newer version would lie beside the older one, and a deletion would miss its document."""
    name, alias = stage.topics.group, f"/{stage.topics.group}"
    with httpx2.Client(base_url=search_url, timeout=PATIENCE_S) as client:
        first = {"aliases": {name: {"is_write_index": True}}}
        client.put(f"{alias}-000001", json=first).raise_for_status()
        publishers = Publishers()
        stage.publish([publishers.write("key-1", article("key-1"))])
        with stage.indexer("--until-caught-up") as indexer:
            assert 0 == indexer.wait(PATIENCE_S)
        client.post(f"{alias}/_rollover").raise_for_status()
    stage.publish([publishers.write("key-1", None)])
    with stage.indexer("--until-caught-up") as indexer:
        assert 2 == indexer.wait(PATIENCE_S)
    assert stage.lag()
    with (
        closing(opened(stage, search_url)) as index,
        pytest.raises(SettingsError, match=f"{name}-000001, {name}-000002"),
    ):
        index.meta()


def test_a_template_inside_the_pattern_of_another_is_installed_too(stage: Stage) -> None:
    """`articles-next` fits the pattern `articles-*`: the longer name wins."""
    name = stage.environment["ENRICHER_INDEX__NAME"]
    for each in (name, f"{name}-next", name):
        result = run("index", "template", "--install", env={**stage.environment, "ENRICHER_INDEX__NAME": each})
        assert 0 == result.exit_code, result.exception
