"""A real OpenSearch: the template, the documented queries on the sample articles, the demo's page, deletes, verification."""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any
from zlib import crc32

import httpx2
import pytest
from commands.cli_runner import run
from support.browser import Browser, chromium
from support.operating import commit, write
from support.patience import PATIENCE_S, wait_until
from support.topics import Topics

from enricher.indexing.bulk_writer import bulk_lines
from enricher.indexing.index_documents import Document, DocumentMaker
from enricher.worker.commands import enrich
from enricher.worker.records import Partition, RawRecord
from tools import ARTICLES, ROOT
from tools.chaos.stub import StubEngine, stub_model
from tools.demo.search.page import Search
from tools.demo.search.server import SearchPage, ask
from tools.worker_parts import tasks_of

pytestmark = pytest.mark.broker

Record = dict[str, Any]
PAGE = (ROOT / "deploy" / "search-index.md").read_text(encoding="utf-8")
QUERIES: dict[str, Any] = {
    heading.partition("\n")[0]: json.loads(query)
    for heading, query in re.findall(r"^### (.*?)^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
}
"""The queries of the page, by their headings."""
EXAMPLES = sorted((ROOT / "schemas" / "examples" / "enriched-record.v1" / "valid").glob("*.json"))
CONTRAST = (ROOT / "tests" / "health" / "contrast.js").read_text(encoding="utf-8")


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


def is_asked_for(article: Record) -> bool:
    """Whether a query of the page may find it, as one of few."""
    text = article["title"] + article["body"]
    return (
        re.search("Obama|NASA|medicating", text) is not None or "2013-10-13" <= article["published_at"] < "2013-10-20"
    )


KNOWN = {"Barack Obama": "PER", "Obama": "PER", "NASA": "ORG", "America": "LOC"}
CATALOGUE = {"Barack Obama": "Q76\tBarack Obama", "Obama": "Q76\tBarack Obama", "America": "Q30\tUnited States"}
CATALOGUE["NASA"] = "Q23548\tNational Aeronautics and Space Administration"
NAME = re.compile(r"Barack Obama|[A-Z]\w+")


def entities_in(article: Record) -> Iterator[Record]:
    """Stand in for a model, which takes seconds: known names, and every capitalised word with a label by its hash."""
    for field in ("title", "body"):
        for found in NAME.finditer(article[field]):
            text, chosen = found[0], crc32(found[0].encode())
            label = KNOWN.get(text) or ("PER", "ORG", "LOC")[chosen % 3]
            score = 0.505 + (chosen + found.start()) % 50 / 100  # none is close to the limit of a query
            entity: Record = {
                "field": field, "start": found.start(), "end": found.end(), "text": text, "label": label, "score": score
            }  # fmt: skip
            if text in CATALOGUE:
                entity["id"], _, entity["catalogue_name"] = CATALOGUE[text].partition("\t")
                entity |= {"ids": [{"id": entity["id"], "match": "name"}], "why": "only"}
            yield entity


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    """The records of sample articles, with their articles, by id: those that are asked for, and the shortest others."""
    articles = sorted(
        map(json.loads, ARTICLES.read_text(encoding="utf-8").splitlines()), key=lambda each: len(each["body"])
    )
    asked_for = list(filter(is_asked_for, articles))
    others = [each for each in articles if each not in asked_for][: len(asked_for)]
    path = tmp_path_factory.mktemp("articles") / "articles.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in (*asked_for, *others)), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(enrich, "load_tasks", lambda settings, **_: tasks_of(settings, stub_model(StubEngine())))
        shown = run("enrich", str(path), env={"ENRICHER_OUTPUT__ARTICLE": "whole"})
    assert 0 == shown.exit_code, shown.exception
    found = map(json.loads, shown.stdout.splitlines())
    further = {"catalogue": {"digest": "sha256:5f", "generation": 1}}
    return {record["id"]: record | further | {"entities": [*entities_in(record["article"])]} for record in found}


@pytest.fixture(scope="module")
def index(search_url: str, records: dict[str, Record]) -> Index:
    """Their index."""
    index = Index(search_url)
    index.write(map(document, records.values()))
    return index


def texts(record: Record, label: str) -> set[str]:
    """The texts of a record's entities with this label."""
    return {entity["text"] for entity in record["entities"] if entity["label"] == label}


def ids(answer: Any) -> set[str]:  # noqa: ANN401  JSON
    """The documents that were found."""
    return {hit["_id"] for hit in answer["hits"]["hits"]}


def most(counts: Counter[str], size: int) -> list[tuple[str, int]]:
    """The highest counts, in the order of the index: equal ones by the text."""
    return sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:size]


def buckets(aggregation: Any) -> list[tuple[str, int]]:  # noqa: ANN401  JSON
    """What was counted."""
    return [(each["key"], each["doc_count"]) for each in aggregation["buckets"]]


def test_a_person_and_a_place(index: Index, records: dict[str, Record]) -> None:
    """The articles in whose records both are."""
    expected = {
        name
        for name, record in records.items()
        if "Barack Obama" in texts(record, "PER") and "America" in texts(record, "LOC")
    }
    assert len(expected) >= 2
    assert expected == ids(index.search(QUERIES["Articles that mention a person and a place"]))


def test_a_person_by_one_of_the_names_with_places_to_highlight(index: Index, records: dict[str, Record]) -> None:
    """The offsets of each mention cut its text out of the document that was found."""

    def is_meant(entity: Record) -> bool:
        return entity["label"] == "PER" and "obama" in re.findall(r"\w+", entity["text"].lower())

    expected = {
        (name, entity["field"], entity["start"], entity["end"])
        for name, record in records.items()
        for entity in record["entities"]
        if is_meant(entity)
    }
    hits = index.search(QUERIES["Articles that mention a person by one of the names"])["hits"]["hits"]
    found = set()
    for hit in hits:
        for inner in hit["inner_hits"]["entities"]["hits"]["hits"]:
            place = inner["_source"]
            assert "obama" in hit["_source"][place["field"]][place["start"] : place["end"]].lower()
            found.add((hit["_id"], place["field"], place["start"], place["end"]))
    assert expected
    assert expected == found


def test_the_top_organisations_of_a_week(index: Index, records: dict[str, Record]) -> None:
    """By the articles of seven days."""
    week = [record for record in records.values() if "2013-10-13" <= record["published_at"] < "2013-10-20"]
    counts = Counter(text for record in week for text in texts(record, "ORG"))
    assert len(week) >= 2
    answer = index.search(QUERIES["The top organisations of a week"])
    assert most(counts, 5) == buckets(answer["aggregations"]["organisations"])


def test_entities_beside_each_other(index: Index, records: dict[str, Record]) -> None:
    """Places in the articles of one organisation."""
    beside = [record for record in records.values() if "NASA" in texts(record, "ORG")]
    assert len(beside) >= 2
    counts = Counter(text for record in beside for text in texts(record, "LOC"))
    answer = index.search(QUERIES["Entities beside each other"])
    assert most(counts, 10) == buckets(answer["aggregations"]["places"])


def test_entries_of_a_catalogue_beside_each_other(index: Index, records: dict[str, Record]) -> None:
    """By their ids, with the names of the catalogue, whatever articles call them."""
    beside = [record for record in records.values() if {"Barack Obama", "Obama"} & {*texts(record, "PER")}]
    assert len(beside) >= 2
    counts = Counter(
        name
        for record in beside
        for name in {f"{each['catalogue_name']}\t{each['id']}" for each in record["entities"] if "id" in each}
    )
    answer = index.search(QUERIES["Entries of a catalogue beside each other"])
    assert "United States\tQ30" in counts
    assert most(counts, 10) == buckets(answer["aggregations"]["entries"])


def test_how_often_something_is_mentioned(index: Index, records: dict[str, Record]) -> None:
    """By mentions, and without the doubtful ones. The index rounds scores to half precision."""
    counts = Counter(
        entity["text"]
        for record in records.values()
        for entity in record["entities"]
        if entity["label"] == "LOC" and entity["score"] >= 0.8999
    )
    answer = index.search(QUERIES["How often something is mentioned"])
    assert most(counts, 10) == buckets(answer["aggregations"]["entities"]["sure"]["names"])


def test_spellings_of_a_name_are_one_value(search_url: str) -> None:
    """As pages break it: in facets, as a whole and in words, while each text is found as it was."""
    spellings = ["Barack Obama", "Barack\nObama", "Barack\u00a0Obama", "Barack Oba\u00adma", "Barack \u200bObama"]
    entity = {"label": "PER", "field": "body", "start": 0, "end": 12, "score": 0.9}
    index = Index(search_url)
    index.write(
        document({"id": str(number), "entities": [entity | {"text": text}]}) for number, text in enumerate(spellings)
    )
    names = {"terms": {"field": "entities.name.keyword"}}
    answer = index.search(
        {
            "query": {"nested": {"path": "entities", "query": {"match": {"entities.name": "obama"}}}},
            "aggs": {
                "facets": {"terms": {"field": "facets.PER"}},
                "entities": {"nested": {"path": "entities"}, "aggs": {"names": names}},
            },
        }
    )
    assert [("Barack Obama", 5)] == buckets(answer["aggregations"]["facets"])
    assert [("Barack Obama", 5)] == buckets(answer["aggregations"]["entities"]["names"])
    assert {*spellings} == {hit["_source"]["entities"][0]["text"] for hit in answer["hits"]["hits"]}


def test_every_query_of_the_page_has_its_test() -> None:
    """One that is added is checked too."""
    source = (ROOT / "tests" / "indexing" / "test_opensearch_queries.py").read_text(encoding="utf-8")
    assert len(QUERIES) == 6
    assert all(f'QUERIES["{heading}"]' in source for heading in QUERIES)


def test_facets_do_not_mix_the_articles_of_their_labels(index: Index, records: dict[str, Record]) -> None:
    """The page's search counts the facets of what it found."""
    search = Search("", (("ORG", "NASA"),))
    found = ask(index.environment["ENRICHER_INDEX__URL"], index.name, search)
    beside = [record for record in records.values() if "NASA" in texts(record, "ORG")]
    assert len(beside) == found.total
    assert {hit["id"] for hit in found.hits} == {record["id"] for record in beside}
    assert ("NASA", len(beside)) in found.facets["ORG"]


@pytest.fixture
def search_page(index: Index) -> Iterator[str]:
    """The page of the demo."""
    with SearchPage(index.environment["ENRICHER_INDEX__URL"], index.name) as page:
        yield page.url


def test_the_page_finds_words_and_marks_entities(search_page: str, records: dict[str, Record]) -> None:
    """A word of one title finds that article first."""
    html = httpx2.get(search_page, params={"q": "self-medicating ants"}, timeout=PATIENCE_S).text
    assert "1 article," in html
    assert '<mark class="PER"' in html
    everything = httpx2.get(search_page, timeout=PATIENCE_S).text
    assert f"{len(records)} articles," in everything


@pytest.mark.skipif(chromium() is None, reason="no Chromium here (Debian: apt install chromium)")
def test_the_page_in_a_browser(search_page: str) -> None:
    """A click on a facet filters; every text has contrast in light and dark; nobody else is asked."""
    program = chromium()
    assert program is not None
    with Browser(program) as browser:
        browser.size(1100)
        browser.open(search_page)
        browser.value("document.querySelector('nav .ORG a').click()")
        browser.until(lambda: browser.value("!!document.querySelector('a.chip.ORG')"), "the filter is shown")
        assert browser.value("document.querySelectorAll('article mark').length") > 0
        for width in (390, 1100):
            for dark in (False, True):
                browser.size(width, dark=dark)
                browser.until(lambda width=width: browser.value("innerWidth") == width, "the window has its size")  # type: ignore[misc]
                assert width >= browser.value("document.documentElement.scrollWidth")
                assert [] == browser.value(CONTRAST)
        assert [] == [url for url in browser.requested if not url.startswith((search_page, "data:"))]
        assert [] == browser.console


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
