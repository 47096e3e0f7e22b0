"""Topics, a worker and a publisher for one layout, as a user would run them: only commands and the environment.

Inputs are articles in their forms; every record is compared with its input, read by Confluent's own deserializers where it
names a schema. Workers are forked, and other commands run in the test's own process, so that neither waits for an
interpreter.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

from commands.cli_runner import run
from confluent_kafka import KafkaError, Message
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import json_format

from support.forked import Forked
from support.mixed.forms import Document, Forms, Headers, Written, compiled
from support.mixed.layouts import Layout, Text, Texts
from support.operating import producer_of
from support.stub_worker import STUB_WORKER
from tools import ROOT
from tools.chaos.scene import TopicKeeper
from tools.reading import STAGE, Reader, headers_of, source_of
from tools.topics import Topics as Names
from tools.waiting import wait_until

_FLUSH_S = 60.0


class Place(NamedTuple):
    """Where an input is."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Input:
    """One input record. `text_number`: inputs with the same one have the same text in different forms."""

    layout: Layout
    form: str
    text_number: int
    text: Text
    key: bytes
    value: bytes
    headers: Headers

    @property
    def wanted(self) -> dict[str, Any]:
        """What the record must contain, entities and what describes the model left out."""
        return {"id": self.key.decode(), **self.layout.repeated(self.text)}

    def with_value(self, value: bytes) -> Input:
        """The same with another value, such as a damaged one."""
        return replace(self, value=value)

    def field(self, name: str) -> str:
        """The text that offsets count in."""
        return self.text.title if name == "title" else self.layout.body(self.text)


class Inputs:
    """Makes inputs of one layout in turn in each form."""

    def __init__(self, layout: Layout, forms: Mapping[str, Callable[[Document, str], Written]]) -> None:
        self._layout = layout
        self._forms = dict(forms)
        self._names = list(forms)
        """Those that come in turn."""
        self._texts = Texts()
        self._made = 0

    def next(self, count: int) -> Iterator[Input]:
        """The next `count` inputs."""
        for _ in range(count):
            number, form = divmod(self._made, len(self._names))
            self._made += 1
            yield self.one(number, self._names[form])

    def one(self, text_number: int, form: str) -> Input:
        """The article with this text in this form."""
        text = self._texts.text(text_number)
        key = f"{self._layout.name}-{text_number}-{form}"
        written = self._forms[form](self._layout.document(text, key), f"event-{key}")
        return Input(self._layout, form, text_number, text, key.encode(), written.value, written.headers)

    def prepare(self, name: str) -> None:
        """Make one input of this form and drop it, so that its serializer has registered its schema."""
        self.one(0, name)

    def add(self, name: str, form: Callable[[Document, str], Written]) -> None:
        """A further form, for `one`."""
        self._forms[name] = form


class Publisher:
    """Writes inputs to a topic, and keeps where each one is."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic = topic
        self._producer = producer_of(bootstrap_servers)
        self.places: dict[Place, Input] = {}

    def send(self, inputs: Iterable[Input]) -> None:
        """Write and wait until the brokers have acknowledged; raises RuntimeError if they do not."""
        failures: list[str] = []
        for each in inputs:

            def delivered(error: KafkaError | None, message: Message, each: Input = each) -> None:
                if error is not None:
                    failures.append(str(error))
                else:
                    self.places[Place(message.partition() or 0, message.offset() or 0)] = each

            self._producer.produce(self._topic, each.value, each.key, headers=list(each.headers), on_delivery=delivered)
            self._producer.poll(0)
        left = self._producer.flush(_FLUSH_S)
        if left or failures:
            raise RuntimeError(f"{left} inputs were not acknowledged, {len(failures)} failed: {failures[:1]}")


OutputFormat = Literal["json", "avro", "protobuf", "json-schema"]
_SHOWN = 5
_DESCRIBED = ("id", "language", "source", "url", "published_at", "metadata", "body_separator")


@dataclass(slots=True)
class Findings:
    """Counts, and the first few examples of each violation."""

    inputs: int = 0
    records: int = 0
    entities: int = 0
    forms: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def note(self, what: str, example: object) -> None:
        """Count a violation."""
        self.counts[what] += 1
        if len(self.examples.setdefault(what, [])) < _SHOWN:
            self.examples[what].append(str(example))

    def __str__(self) -> str:
        wrong = ", ".join(f"{count} {what}" for what, count in self.counts.items()) or "nothing wrong"
        return f"{self.inputs} inputs in {len(self.forms)} forms, {self.records} records, {self.entities} entities; {wrong}"


def check(
    names: Names,
    places: Mapping[Place, Input],
    output_format: OutputFormat = "json",
    registry_url: str = "",
) -> Findings:
    """Compare every record with its input: once, right id and metadata, entities where their offsets say."""
    findings = Findings(inputs=len(places), forms=Counter(each.form for each in places.values()))
    reader = Reader(names.bootstrap_servers, names.group)
    decode = _decoder(output_format, registry_url, names.output)
    seen: Counter[Place] = Counter()
    entities: dict[tuple[str, int], tuple[Any, str]] = {}
    for message in reader.records(names.output):
        origin = source_of(message)
        place = Place(origin.partition, origin.offset)
        seen[place] += 1
        findings.records += 1
        if (each := places.get(place)) is None:
            findings.note("invented", place)
            continue
        record = decode(message)
        check_record(findings, record, each)
        found = [tuple(entity[name] for name in ("field", "start", "end", "label")) for entity in record["entities"]]
        findings.entities += len(found)
        first, form = entities.setdefault((each.layout.name, each.text_number), (found, each.form))
        if found != first:
            findings.note("with other entities than in another form", f"{each.form} and {form}")
    _check_dead_letters(findings, reader, names, places)
    for place, each in places.items():
        if seen[place] != 1:
            findings.note("doubled" if seen[place] else "lost", f"{each.layout.name}, {each.form} at {place}")
    return findings


def check_record(findings: Findings, record: Mapping[str, Any], each: Input) -> None:
    """Ids, metadata, and that the text of each entity is what the offsets cut out of the article."""
    described = {name: record[name] for name in _DESCRIBED if record.get(name) not in (None, {})}
    if described != each.wanted:
        findings.note("with other fields", f"{each.layout.name}, {each.form}: {described} instead of {each.wanted}")
    for entity in record["entities"]:
        if each.field(entity["field"])[entity["start"] : entity["end"]] != entity["text"]:
            findings.note("with entities elsewhere", f"{each.layout.name}, {each.form}: {entity}")


def _check_dead_letters(findings: Findings, reader: Reader, names: Names, places: Mapping[Place, Input]) -> None:
    for message in reader.records(names.dead_letters):
        origin = source_of(message)
        each = places.get(Place(origin.partition, origin.offset))
        headers = headers_of(message)
        reason = f"{headers[STAGE].decode()}: {headers.get('enricher.dlq.error.message', b'').decode()}"
        findings.note("dead letters", f"{each.layout.name}, {each.form}: {reason}" if each else f"{origin}: {reason}")


def _decoder(output_format: OutputFormat, registry_url: str, topic: str) -> Callable[[Message], Any]:
    """Values to documents, as the JSON record has them."""
    if output_format == "json":
        return lambda message: json.loads(message.value() or b"")
    client = SchemaRegistryClient({"url": registry_url})
    context = SerializationContext(topic, MessageField.VALUE)
    read: Any
    if output_format == "json-schema":
        schema = (ROOT / "schemas" / "enriched-record.v1.schema.json").read_text("utf-8")
        read = JSONDeserializer(schema, schema_registry_client=client)
        return lambda message: read(message.value(), context)
    if output_format == "avro":
        read = AvroDeserializer(client)
        return lambda message: _unpacked(read(message.value(), context))
    file = ROOT / "schemas" / "enriched-record.v1.proto"
    made = compiled({file.name: file.read_text("utf-8")}, file.name)
    name = next(iter(made.messages))
    # Without a client: with one it asks for the schema by `format=serialized`, which Apicurio answers with damaged bytes.
    read = ProtobufDeserializer(made.messages[name], {"use.deprecated.format": False})
    return lambda message: _unpacked(
        json_format.MessageToDict(
            read(message.value(), context), preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
    )


def _unpacked(record: dict[str, Any]) -> dict[str, Any]:
    """Avro and Protobuf have the values of `metadata` as JSON text."""
    metadata = record.get("metadata")
    return {**record, "metadata": {name: json.loads(text) for name, text in metadata.items()}} if metadata else record


PARTITIONS = 4


class Stage:
    """One layout's topics and files, in `folder`. A worker that is started here ends with it.

    `registry_url`: what the worker and the serializers ask, a proxy's URL because of the GUIDs. `stub`: instead of the
    model.
    """

    def __init__(
        self,
        layout: Layout,
        folder: Path,
        *,
        bootstrap_servers: str,
        registry_url: str,
        output_format: OutputFormat = "json",
        settings: Mapping[str, str] | None = None,
        stub: bool = False,
    ) -> None:
        self._program = [STUB_WORKER] if stub else ["-m", "enricher"]
        self.names = Names.fresh(bootstrap_servers, f"mixed-{layout.name}")
        self._registry_url = registry_url
        self._output_format = output_format
        self._folder = folder / layout.name
        self._folder.mkdir()
        self._cleanup = ExitStack()
        TopicKeeper(self.names, PARTITIONS, replicas=1).make_all()
        self.forms = Forms(layout, registry_url, self.names.input)
        self.inputs = Inputs(layout, self.forms.by_name)
        self.publisher = Publisher(bootstrap_servers, self.names.input)
        self._reader = Reader(bootstrap_servers, self.names.group)
        self.log = self._folder / "worker.log"
        self.environment = self._environment(layout, settings or {})
        if output_format != "json":
            assert run("schemas", "register", env=self.environment).exit_code == 0

    def publish(self, count: int) -> None:
        """Publish the next `count` inputs."""
        self.publisher.send(self.inputs.next(count))

    def start(self, *arguments: str) -> Forked:
        """Start `enricher run`, which logs to `log`."""
        process = Forked([*self._program, "run", *arguments], self.environment, self.log)
        return self._cleanup.enter_context(process)

    def run_to_the_end(self) -> int:
        """Let a worker do everything that is there; returns its exit code."""
        return self.start("--until-caught-up").wait()

    def backlog(self) -> int:
        """How many input offsets are not committed."""
        return self._reader.lag(self.names.input)

    def wait_until_done(self, timeout_s: float) -> bool:
        """Wait until all is committed."""
        return wait_until(lambda: self.backlog() == 0, timeout_s, 0.5)

    def dead_letters(self) -> int:
        """How many there are."""
        return self._reader.count(self.names.dead_letters, "read_committed")

    def check(self) -> Findings:
        """Compare all records with their inputs."""
        return check(self.names, self.publisher.places, self._output_format, self._registry_url)

    def verify(self) -> tuple[int, str]:
        """Run `enricher verify`; returns its exit code and what it printed."""
        result = run("verify", env=self.environment)
        return result.exit_code, f"{result.stdout}{result.stderr}{result.exception or ''}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def _environment(self, layout: Layout, settings: Mapping[str, str]) -> dict[str, str]:
        outside = {name: value for name, value in os.environ.items() if not name.startswith("ENRICHER_")}
        return {
            **outside,
            **self.names.variables("mixed-0"),
            "ENRICHER_ARTICLES__FORMAT": "registry",
            "ENRICHER_REGISTRY__URL": self._registry_url,
            "ENRICHER_REGISTRY__CACHE_DIR": str(self._folder / "schemas"),
            "ENRICHER_REGISTRY__UNKNOWN_WAIT_S": "1",
            "ENRICHER_OUTPUT__FORMAT": self._output_format,
            **layout.settings(),
            **settings,
        }
