"""The cost of reading an article, by how it is written: CPU time of `ArticleReader.read` alone, in turns.

Another format is one more entry in `ways_to_write`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Any

import fastavro
import orjson

from enricher.worker.articles import ArticleReader, FieldMapping
from enricher.worker.articles.formats import compile_schema
from enricher.worker.articles.schemas import Decoder, Schema, SchemaRef
from enricher.worker.records import Partition, RawRecord
from tools.bench.load import Mix, articles
from tools.bench.machine import LoadMeter
from tools.bench.outcome import Claim, Table
from tools.bench.repeating import Run, Spread, claim, interleave, ratios, us_each

MAPPED_AIM = 1.10
AVRO_AIM = 2.0
UNMAPPED, MAPPED, AVRO = "JSON", "JSON with a field mapping", "Avro with a schema id"

_ARTICLES = 430
"""Ten times the number of samples."""
_PASSES = 40
_REPETITIONS = 15
"""More than of other legs: one takes a tenth of a second, and what is compared differs by little."""
_FIELDS = {"id": "/uuid", "title": "/headline", "body": "/content/text"}
_AVRO_PREFIX = b"\x00\x00\x00\x00\x07"
_REQUIRED = ("id", "title", "body")
_OPTIONAL = ("language", "source", "url", "published_at", "license")
"""With the required ones, all that the samples have."""


@dataclass(frozen=True, slots=True)
class Way:
    """Articles written in one way, and what reads them. `aim`: times the cost of JSON without a mapping."""

    write: Callable[[dict[str, Any]], bytes]
    reader: ArticleReader
    aim: float | None = None


def ways_to_write() -> dict[str, Way]:
    return {
        UNMAPPED: Way(orjson.dumps, _reader()),
        MAPPED: Way(_elsewhere, _reader(mapping=FieldMapping(_FIELDS)), MAPPED_AIM),
        AVRO: _avro(),
    }


def _reader(**more: Any) -> ArticleReader:  # noqa: ANN401  as the reader takes
    return ArticleReader(max_article_chars=1_000_000, max_value_bytes=4_194_304, **more)


def _avro() -> Way:
    """Behind Confluent's prefix, with the schema at hand."""
    fields: list[dict[str, Any]] = [{"name": name, "type": "string"} for name in _REQUIRED]
    fields += [{"name": name, "type": ["null", "string"]} for name in _OPTIONAL]
    schema = {"type": "record", "name": "Article", "fields": fields}
    parsed = fastavro.parse_schema(schema)

    def write(article: Mapping[str, Any]) -> bytes:
        assert set(article) <= {*_REQUIRED, *_OPTIONAL}, "Avro has the same article as JSON"
        out = BytesIO()
        fastavro.schemaless_writer(out, parsed, article)
        return _AVRO_PREFIX + out.getvalue()

    return Way(write, _reader(decoders=_OneSchema(compile_schema(Schema("AVRO", json.dumps(schema))))), AVRO_AIM)


class _OneSchema:
    def __init__(self, decode: Decoder) -> None:
        self._decode = decode

    def decoder(self, reference: SchemaRef) -> Decoder:
        assert reference == SchemaRef("id", "7")
        return self._decode


def _elsewhere(article: dict[str, Any]) -> bytes:
    """The article with its fields where `_FIELDS` says."""
    others = {name: value for name, value in article.items() if name not in _FIELDS}
    moved = {"uuid": article["id"], "headline": article["title"], "content": {"text": article["body"]}}
    return orjson.dumps(moved | others)


@dataclass(frozen=True, slots=True)
class Reading:
    """The runs of each way to write the articles of one mix."""

    mix: Mix
    ways: Mapping[str, Way]
    runs: Mapping[str, Sequence[Run]]

    def cost_us(self, name: str) -> Spread:
        """Microseconds of a core per article."""
        return us_each(self.runs[name])

    def ratio(self, name: str) -> Spread:
        """The cost over that of unmapped JSON, repetition by repetition."""
        return ratios(self.runs[UNMAPPED], self.runs[name])

    def figures(self) -> dict[str, Any]:
        return {name: {"us": self.cost_us(name), "over_json": self.ratio(name)} for name in self.runs}

    def claims(self) -> list[Claim]:
        """The aims of the ways that have one."""
        found = []
        for name, way in self.ways.items():
            if way.aim is not None:
                cost, plain = self.cost_us(name), self.cost_us(UNMAPPED)
                text = f"{self.mix}: reading {name} takes {self.ratio(name)} of reading {UNMAPPED} (aim {way.aim:g}), "
                text += f"{cost} us instead of {plain} us"
                runs = (*self.runs[name], *self.runs[UNMAPPED])
                found.append(claim(text, runs, held=self.ratio(name).median <= way.aim))
        return found


def measure(mix: Mix, say: Callable[[str], None], *, quick: bool) -> Reading:
    """Read articles of this mix in every way."""
    documents = [orjson.loads(value) for value in articles(mix, _ARTICLES)]
    ways = ways_to_write()
    contenders = {name: partial(_run, way, [way.write(each) for each in documents]) for name, way in ways.items()}
    return Reading(mix, ways, interleave(contenders, 3 if quick else _REPETITIONS, lambda text: say(f"{mix}: {text}")))


def _run(way: Way, values: Sequence[bytes]) -> Run:
    records = [RawRecord(Partition("articles", 0), offset, None, value) for offset, value in enumerate(values)]
    meter, began_s = LoadMeter(), time.thread_time()
    for _ in range(_PASSES):
        for record in records:
            way.reader.read(record)
    return Run(_PASSES * len(records) / (time.thread_time() - began_s), meter.read())


def table(readings: Sequence[Reading]) -> Table:
    """A row for each way."""
    columns = ["", *(f"{each.mix}{what}" for each in readings for what in ("", f", over {UNMAPPED}"))]
    rows = [
        [name, *(str(spread) for each in readings for spread in (each.cost_us(name), each.ratio(name)))]
        for name in readings[0].runs
    ]
    note = f"The mapping: {orjson.dumps(_FIELDS).decode()}. Part of the loop's thread above."
    return Table("Reading an article, us of a core", columns, rows, note)
