"""Settings -> readers of articles, writers of records, and the schema registry that both may need.

Nothing of models is imported here, so most commands load quickly.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from enricher.distribution import install_command, installed_version
from enricher.errors import SettingsError, TransactionTrouble
from enricher.worker.articles import (
    ArticleReader,
    DeleteEvents,
    Encoder,
    FieldMapping,
    RecordWriter,
    record_writer,
    without_repeats,
)
from enricher.worker.articles.formats import PLAIN_FORMATS, ReadDocument, compile_schema, read_document, require_formats
from enricher.worker.articles.html_rule import looks_like_html
from enricher.worker.articles.mapping import is_beside
from enricher.worker.articles.schemas import Compile, Decoders
from enricher.worker.articles.transforms import Transform, document_transform, keep_records, load_transform
from enricher.worker.files.live_catalogue import LiveCatalogue
from enricher.worker.records import (
    Article,
    DeadLetter,
    EnrichedRecord,
    Keep,
    RawRecord,
    Skipped,
    SourceMap,
    Tombstone,
    TransformCard,
    Versioning,
)
from enricher.worker.registry.decoders import Fetcher, RegistryDecoders, WaitingDecoders
from enricher.worker.registry.registry_client import RegistryClient
from enricher.worker.registry.store import RecordSchema, SchemaPlaces, SchemaStore
from enricher.worker.settings import Settings
from enricher.worker.stats import Counters

if TYPE_CHECKING:
    from enricher.worker.articles.reader import ReadMarkup

log = logging.getLogger(__name__)
ReaderOf = Callable[[Decoders | None], ArticleReader]
"""The reader of articles, given the decoders of values that name a schema."""

_MAX_SCHEMA_BYTES = 1_000_000
"""The most bytes of a schema with everything that it refers to: anybody who may register one wrote it."""
REGISTRY_TIMEOUT_S = 10.0
"""The longest time for connecting to one URL of the registry, and for each part of its answer."""


def check_formats(settings: Settings) -> None:
    """Check the packages and files of the formats before the model is loaded. Connects to nothing; raises SettingsError."""
    markup_reader(settings)
    load_transforms(settings)
    if settings.articles.format == "registry" or settings.output.format != "json":
        registry_client(settings)


def article_reader(
    settings: Settings, decoders: Decoders | None = None, *, seconds: dict[str, float] | None = None
) -> ArticleReader:
    """The reader of input records. `decoders`: for values that name a schema (`articles.format=registry`).

    `seconds`: counts the time of `articles.transform`.
    """
    form = settings.articles.format
    read_plain = PLAIN_FORMATS["json" if form == "registry" else form]
    return _reader(settings, _mapping(settings, settings.articles.fields), decoders, read_plain, seconds)


def line_reader(settings: Settings, *, mapped: bool = True) -> ArticleReader:
    """The reader of articles that are lines of a file. `mapped=False`: for our own articles, whose fields are at the top."""
    if mapped:
        return _reader(settings, line_mapping(settings))
    articles = settings.articles
    return ArticleReader(
        max_article_chars=articles.max_article_chars,
        max_value_bytes=articles.max_value_bytes,
        keep_document=settings.output.article == "whole",
    )


def read_function(
    settings: Settings, reader: ArticleReader, *, by_language: bool
) -> Callable[[RawRecord], Article | Tombstone | Skipped]:
    """The function that reads articles, without the parts that records do not repeat.

    `by_language`: it also sets the language of each article, as `Tasks.by_language` asks.
    """
    output, versioning = settings.output, versioning_of(settings)
    if output.article != "none" and not output.version and not by_language:
        return reader.read

    def read(raw: RawRecord) -> Article | Tombstone | Skipped:
        article = reader.read(raw)
        if not isinstance(article, Article):
            return article
        if by_language:
            article = replace(article, language=article.metadata.get("language"))
        if output.version:
            article = replace(article, version=versioning.version_of(raw))
        return without_repeats(article) if output.article == "none" else article

    return read


def load_transforms(
    settings: Settings, seconds: dict[str, float] | None = None
) -> tuple[Transform | None, Transform | None]:
    """Import the functions of `articles.transform` and `output.transform`. Raises SettingsError.

    `seconds`: counts the time of their calls.
    """
    seconds = {} if seconds is None else seconds
    return (
        load_transform("articles.transform", settings.articles.transform, 2, seconds),
        load_transform("output.transform", settings.output.transform, 1, seconds),
    )


def transform_cards(settings: Settings) -> tuple[TransformCard, ...]:
    """The names and packages of these functions, as records have them. Raises SettingsError."""
    return _cards(load_transforms(settings))


def keep_function(settings: Settings, counters: Counters | None = None, catalogue: LiveCatalogue | None = None) -> Keep:
    """The function that makes records ready to wait for their transaction; it first adds the ids of the catalogue.

    Raises SettingsError.
    """
    counters = counters or Counters()
    transforms = load_transforms(settings, counters.transform_s)
    keep = keep_records(_cards(transforms), transforms[1], settings.articles.max_record_bytes)
    if catalogue is None:
        return keep
    catalogue.note(counters)

    def keep_with_ids(record: EnrichedRecord) -> EnrichedRecord | DeadLetter:
        found = catalogue.add_ids(record, counters)
        return found if isinstance(found, DeadLetter) else keep(found)

    return keep_with_ids


def _cards(transforms: Iterable[Transform | None]) -> tuple[TransformCard, ...]:
    return tuple(each.card for each in transforms if each)


def markup_reader(settings: Settings) -> ReadMarkup | None:
    """The function that reads bodies with markup; None if all bodies are text. Raises SettingsError without the extra."""
    body_format = settings.articles.body_format
    if body_format == "text":
        return None
    try:
        from enricher.worker.articles.html_text import read_html  # noqa: PLC0415  of an extra
    except ImportError as error:
        message = f"articles.body_format={body_format} needs more packages ({error}): {install_command('html')}"
        raise SettingsError(message) from error
    if body_format == "html":
        return read_html

    def read_if_html(blocks: Sequence[str], separator: str) -> tuple[str, SourceMap] | None:
        return read_html(blocks, separator) if any(map(looks_like_html, blocks)) else None

    return read_if_html


def line_mapping(settings: Settings) -> FieldMapping:
    """The mapping for lines of a file. Lines have neither key nor headers, so the id is in the document."""
    fields = {name: where for name, where in settings.articles.fields.items() if not is_beside(where)}
    return _mapping(settings, fields)


def delete_events(settings: Settings, mapping: FieldMapping) -> DeleteEvents | None:
    """The rule for delete events; None without one in the settings. `mapping`: the articles', which may find their ids."""
    deleted, articles = settings.articles.deleted, settings.articles
    if deleted is None:
        return None
    ids = mapping if deleted.id is None else FieldMapping({"id": deleted.id}, scalar_ids=articles.scalar_ids)
    return DeleteEvents(deleted.field, deleted.values, ids)


def _mapping(settings: Settings, fields: dict[str, str]) -> FieldMapping:
    articles = settings.articles
    return FieldMapping(
        fields,
        metadata=articles.metadata,
        scalar_ids=articles.scalar_ids,
        drop_wrong=articles.wrong_optional == "drop",
    )


def _reader(
    settings: Settings,
    mapping: FieldMapping,
    decoders: Decoders | None = None,
    read_plain: ReadDocument = read_document,
    seconds: dict[str, float] | None = None,
) -> ArticleReader:
    articles = settings.articles
    transform, _ = load_transforms(settings, seconds)
    return ArticleReader(
        max_article_chars=articles.max_article_chars,
        max_value_bytes=articles.max_value_bytes,
        mapping=mapping,
        decoders=decoders,
        read_plain=read_plain,
        deletes=delete_events(settings, mapping),
        transform=document_transform(transform, articles.max_value_bytes) if transform else None,
        read_markup=markup_reader(settings),
        keep_document=settings.output.article == "whole",
    )


def writer_of(settings: Settings) -> tuple[RecordWriter, Callable[[], None]]:
    """The writer of records, and a function that must be called before it writes. Raises SettingsError.

    That function blocks while it asks the registry, and does nothing once it has succeeded. It raises TransactionTrouble,
    after which it may be called again, and BrokerError if the schema of records is not registered.
    """
    writer = record_writer(settings.output.format)
    if writer.schema is None:
        return writer, lambda: None
    schema = RecordSchema(subject_of(settings), writer.schema, registry_client(settings), schema_store(settings))

    def prepare() -> None:
        if not writer.ready:
            writer.begin_with(schema.find_id())

    return writer, prepare


def subject_of(settings: Settings) -> str:
    """The subject of the schema of records."""
    return settings.output.subject or f"{settings.kafka.output_topic}-value"


def check_record_schema(settings: Settings) -> None:
    """Raise BrokerError if the schema of records is not registered, before the model is loaded, which takes longer.

    Returns if the registry does not answer: the start itself waits for it.
    """
    _, prepare = writer_of(settings)
    try:
        prepare()
    except TransactionTrouble as trouble:
        log.info("the schema of records is looked up after the model is loaded: %s", trouble)


def encoder_of(settings: Settings, writer: RecordWriter) -> Encoder:
    """The maker of the bytes of outputs and dead letters. Raises SettingsError."""
    return Encoder(
        version=installed_version(),
        max_record_bytes=settings.articles.max_record_bytes,
        max_dead_letter_bytes=settings.articles.max_dead_letter_bytes,
        clock=time.time,
        writer=writer,
        versioning=versioning_of(settings),
    )


def versioning_of(settings: Settings) -> Versioning:
    """The versioning of outputs, by the numbers in the settings."""
    return Versioning(settings.kafka.epoch, settings.model.generation)


def registry_client(settings: Settings) -> RegistryClient:
    """A client for this registry. Reads secrets and certificates from files; raises SettingsError."""
    require_formats()
    registry = settings.registry
    return RegistryClient(
        registry.url,
        registry.client_properties(),
        timeout_s=REGISTRY_TIMEOUT_S,
        max_schema_bytes=_MAX_SCHEMA_BYTES,
    )


def schema_store(settings: Settings) -> SchemaStore:
    """The copies of this registry's schemas on disk."""
    # The order of the URLs does not matter: they are one registry.
    urls = ", ".join(sorted(each.strip() for each in settings.registry.url.split(",")))
    return SchemaStore(settings.registry.cache_dir, urls)


def registry_decoders(
    settings: Settings, *, wake: Callable[[], None], compile_schema: Compile = compile_schema
) -> RegistryDecoders | None:
    """The decoders of records that name a schema, with a running fetcher; None if the settings expect no such records.

    The caller closes them. Raises SettingsError.
    """
    if settings.articles.format != "registry":
        return None
    check_formats(settings)
    find = SchemaPlaces(registry_client(settings), schema_store(settings)).find
    wait_s = settings.registry.unknown_wait_s
    return RegistryDecoders(Fetcher(find, compile_schema, wake=wake, unknown_wait_s=wait_s))


@contextmanager
def waiting_decoders(settings: Settings) -> Iterator[WaitingDecoders | None]:
    """Decoders for commands, which may wait for a schema. Raises SettingsError."""
    arrived = threading.Event()
    decoders = registry_decoders(settings, wake=arrived.set)
    if decoders is None:
        yield None
        return
    with closing(decoders):
        # As long as the fetcher's first request may take, and a little for the decoder.
        yield WaitingDecoders(decoders, arrived, timeout_s=REGISTRY_TIMEOUT_S + 1.0)
