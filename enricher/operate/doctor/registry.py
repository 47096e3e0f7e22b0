"""Checks of the schema registry: whether it answers, the schema of records, the schemas of the newest articles.

Nothing is registered. Where the worker would wait for a registry, a check fails, because waiting enriches nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from enricher.errors import BrokerError, InvalidArticle
from enricher.operate.doctor.findings import Finding, Reporter
from enricher.operate.trials.rights import newest_records
from enricher.worker.articles import record_writer
from enricher.worker.articles.framing import read_frame
from enricher.worker.articles.schemas import SchemaRef
from enricher.worker.build.kafka_clients import kafka_config
from enricher.worker.build.record_writer import subject_of
from enricher.worker.build.schema_registry import glue_folder, registry_client
from enricher.worker.commands.one_input import with_one_input
from enricher.worker.registry.levels import recommended_level
from enricher.worker.registry.registry_errors import (
    RefusedByRegistry,
    RegistryUnavailable,
    UnknownToRegistry,
    UnusableSchema,
)

if TYPE_CHECKING:
    from enricher.worker.contracts import SchemaType
    from enricher.worker.registry.registry_client import RegistryClient
    from enricher.worker.settings import Settings

_NEWEST = 20
"""Records per partition of which the schemas are looked up."""
_NAMES: dict[SchemaType, str] = {"AVRO": "Avro", "PROTOBUF": "Protobuf", "JSON": "JSON Schema"}
_SHOWN = 8
"""Schemas that are looked up and named."""
_CREDENTIALS = (
    "Set basic.auth.user.info or bearer.auth.token in registry.properties, or give this user the right to read schemas."
)
_REACH = (
    "Is registry.url right, with its path, and is the registry up? Meanwhile a worker would keep articles with schemas that "
    "it does not know waiting."
)

_report = Reporter("registry")


def registry_findings(settings: Settings) -> Iterator[Finding]:
    """All checks of the registry; none without one. Raises SettingsError."""
    client = registry_client(settings) if settings.registry.url else None
    if client is not None:
        try:
            subjects = client.subjects()
        except RegistryUnavailable as error:
            yield _report.fail("registry", str(error), _CREDENTIALS if error.status in {401, 403} else _REACH)
            return
        yield _report.ok("registry", f"{client.name} answers; subjects: {len(subjects)}")
        if settings.output.format != "json":
            yield from _schema_of_records(client, settings)
    if settings.articles.format == "registry":
        for topic in settings.kafka.inputs:
            yield from _articles(client, with_one_input(settings, topic))


def _schema_of_records(client: RegistryClient, settings: Settings) -> Iterator[Finding]:
    subject = subject_of(settings)
    check, schema = f"subject {subject}", record_writer(settings.output.format).schema
    assert schema is not None, "every format but json has one"
    try:
        found = client.lookup(subject, schema)
        level = client.compatibility(subject)
    except (RegistryUnavailable, RefusedByRegistry) as error:
        yield _report.fail(check, str(error), "Its rights, or output.subject, may be wrong.")
        return
    if found is not None:
        yield _report.ok(check, f"has our {_NAMES[schema.type]} schema, version {found.version}, id {found.id}")
    elif settings.registry.auto_register:
        yield _report.warn(check, "our schema is not there", "The worker will register it (registry.auto_register).")
    else:
        advice = "Run 'enricher schemas register'; with --dry-run first, to see what it would do."
        yield _report.fail(check, "our schema is not there: a worker would not start", advice)
    wanted = recommended_level(schema.type)
    if level != wanted:
        seen = f"{level}; with {wanted}, versions with more optional fields can be registered, and no others"
        advice = f"'enricher schemas register --compatibility {wanted}' sets it; schemas/README.md says why."
        yield _report.warn(f"compatibility of {subject}", seen, advice)


def _articles(client: RegistryClient | None, settings: Settings) -> Iterator[Finding]:
    """How the newest articles name their schemas, and whether these are there."""
    check = "schemas of the newest articles"
    try:
        named = _references(settings)
    except BrokerError as error:
        yield _report.warn(check, f"not looked up: {error}", "See the checks of the broker.")
        return
    if not named:
        yield _report.ok(check, f"'{settings.kafka.input_topic}' has no records yet")
        return
    described = [(count, *_describe(client, settings, reference)) for reference, count in named.most_common(_SHOWN)]
    seen = ", ".join(f"{count} x {text}" for count, text, _ in described)
    if all(usable for *_, usable in described):
        yield _report.ok(check, seen)
    else:
        yield _report.warn(check, seen, "Records with a schema that is not there become dead letters.")


def _references(settings: Settings) -> Counter[SchemaRef | InvalidArticle | None]:
    """How often the newest records name each schema. None: JSON without one; errors: what breaks their frame."""
    config, limit_bytes = kafka_config(settings), settings.articles.max_value_bytes
    damaged: dict[str, InvalidArticle] = {}
    named: Counter[SchemaRef | InvalidArticle | None] = Counter()
    for record in newest_records(config, config.input_topic, _NEWEST):
        if record.value is None:
            continue
        try:
            frame = read_frame(record.value, record.headers, max_payload_bytes=limit_bytes)
        except InvalidArticle as error:
            named[damaged.setdefault(str(error), error)] += 1
        else:
            named[frame.reference if frame else None] += 1
    return named


def _describe(
    client: RegistryClient | None, settings: Settings, reference: SchemaRef | InvalidArticle | None
) -> tuple[str, bool]:
    """A schema as text, and whether its records can be read."""
    if reference is None:
        return "JSON without a schema", True
    if isinstance(reference, InvalidArticle):
        return f"no article ({reference})", False
    try:
        if not reference.in_registry:
            glue = glue_folder(settings)
            if glue is None:
                return f"{reference}, but registry.glue_folder is empty", False
            schema = glue.schema(reference.name)
        elif client is None:
            return f"{reference}, but registry.url is empty", False
        else:
            schema = client.schema(reference)
    except (RegistryUnavailable, UnknownToRegistry, UnusableSchema) as error:
        return f"{reference}, which could not be fetched ({error})", False
    return f"{_NAMES[schema.type]} ({reference})", True
