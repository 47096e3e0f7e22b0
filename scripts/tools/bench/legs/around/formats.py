"""Part of the leg `around`: what it costs to encode a record in each format, and how large it is."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson

from enricher.worker.articles import RecordWriter, record_writer, write_entities
from enricher.worker.build.loaded_model import Model
from enricher.worker.build.recomputation import recompute
from enricher.worker.contracts import RecordFormat
from enricher.worker.records import Coverage, EnrichedRecord, Partition, RawRecord, TaskReport
from enricher.worker.settings import Settings
from tools.bench.load import Mix, articles
from tools.bench.outcome import Table
from tools.bench.repeating import Spread, in_turns
from tools.decoding import decode_article
from tools.only_task import only_task, tasks_of

FORMATS: tuple[RecordFormat, ...] = ("json", "json-schema", "avro", "protobuf")
_DISTINCT, _RECORDS, _SCHEMA_ID = 43, 1_000, 7


@dataclass(frozen=True, slots=True)
class FormatCosts:
    """Microseconds and bytes per record, by format."""

    mix: Mix
    entities: float
    us: Mapping[RecordFormat, Spread]
    record_bytes: Mapping[RecordFormat, float]

    def figures(self) -> dict[str, Any]:
        return {
            "entities_per_record": self.entities,
            "encode_us": dict(self.us),
            "record_bytes": dict(self.record_bytes),
        }


def format_costs(settings: Settings, model: Model, mix: Mix, repetitions: int) -> FormatCosts:
    """Encode the same records in each format in turn. CPU time of one thread, entities serialised beforehand."""
    records = _records(settings, model, mix)
    writers = {name: _writer(name) for name in FORMATS}
    contenders = {name: partial(_us_per_record, writer, records) for name, writer in writers.items()}
    us = in_turns(contenders, repetitions, lambda _: None)
    return FormatCosts(
        mix,
        sum(len(record.entities) for record in records) / len(records),
        {name: Spread.of(values) for name, values in us.items()},
        {name: sum(len(writer.write(record)) for record in records) / len(records) for name, writer in writers.items()},
    )


def format_table(costs: Sequence[FormatCosts]) -> Table:
    """One row for each format."""
    columns = ["", *(f"{each.mix}, {unit}" for each in costs for unit in ("us", "bytes"))]
    rows = [
        (name, *(text for each in costs for text in (str(each.us[name]), f"{each.record_bytes[name]:.0f}")))
        for name in FORMATS
    ]
    note = "; ".join(f"{each.mix}: {each.entities:.1f} entities" for each in costs)
    return Table("Encoding a record, by output.format", columns, rows, note)


def _records(settings: Settings, model: Model, mix: Mix) -> list[EnrichedRecord]:
    """Records of distinct articles, with the entities that the model finds."""
    values = articles(mix, _DISTINCT)
    inputs = [RawRecord(Partition("articles", 0), number, None, value) for number, value in enumerate(values)]
    records = []
    for value, found in zip(values, recompute(settings, tasks_of(settings, model), inputs), strict=True):
        assert found is not None, "the bench has no bad articles"
        record = orjson.loads(found)
        article = decode_article(value, max_article_chars=settings.articles.max_article_chars)
        entities = write_entities(article, record["entities"])
        coverage = Coverage(**record["coverage"])
        records.append(EnrichedRecord(article, entities, coverage, [TaskReport(only_task(model.card), coverage)]))
    return records


def _writer(name: RecordFormat) -> RecordWriter:
    writer = record_writer(name)
    if writer.schema is not None:
        writer.begin_with(_SCHEMA_ID)
    return writer


def _us_per_record(writer: RecordWriter, records: Sequence[EnrichedRecord]) -> float:
    rounds = -(-_RECORDS // len(records))
    began_s = time.thread_time()
    for _ in range(rounds):
        for record in records:
            writer.write(record)
    return 1e6 * (time.thread_time() - began_s) / (rounds * len(records))
