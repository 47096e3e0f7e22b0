"""Settings -> clients, copies on disk and decoders of a schema registry, for the worker and for commands."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from enricher.errors import SettingsError
from enricher.worker.articles.formats import compile_schema, require_formats
from enricher.worker.articles.schemas import Compile
from enricher.worker.build.article_readers import markup_reader
from enricher.worker.registry.decoders import Fetcher, RegistryDecoders, WaitingDecoders
from enricher.worker.registry.registry_client import RegistryClient
from enricher.worker.registry.store import GlueFolder, SchemaPlaces, SchemaStore
from enricher.worker.settings import Settings


def check_formats(settings: Settings) -> None:
    """Check what articles and records need, before the model is loaded. Connects to nothing; raises SettingsError."""
    markup_reader(settings)
    registry = settings.registry
    if settings.articles.format == "registry":
        if registry.glue_folder and not registry.glue_folder.is_dir():
            raise SettingsError(f"registry.glue_folder: {registry.glue_folder} is not a folder")
        require_formats()
        if registry.url:
            registry_client(settings)
    if settings.output.format != "json":
        registry_client(settings)


def registry_client(settings: Settings) -> RegistryClient:
    """A client for this registry. Reads secrets and certificates from files; raises SettingsError."""
    require_formats()
    registry = settings.registry
    return RegistryClient(
        registry.url,
        registry.client_properties(),
        timeout_s=registry.timeout_s,
        max_schema_bytes=registry.max_schema_bytes,
    )


def schema_store(settings: Settings) -> SchemaStore:
    """The copies of this registry's schemas on disk."""
    # The order of the URLs does not matter: they are one registry.
    urls = ", ".join(sorted(each.strip() for each in settings.registry.url.split(",")))
    return SchemaStore(settings.registry.cache_dir, urls)


def glue_folder(settings: Settings) -> GlueFolder | None:
    """The schemas of AWS Glue; None without a folder in the settings."""
    registry = settings.registry
    if registry.glue_folder is None:
        return None
    return GlueFolder(registry.glue_folder, max_schema_bytes=registry.max_schema_bytes)


def registry_decoders(
    settings: Settings, *, wake: Callable[[], None], compile_schema: Compile = compile_schema
) -> RegistryDecoders | None:
    """The decoders of records that name a schema, with a running fetcher; None if the settings expect no such records.

    The caller closes them. Raises SettingsError.
    """
    registry = settings.registry
    if settings.articles.format != "registry":
        return None
    check_formats(settings)
    places = SchemaPlaces(
        client=registry_client(settings) if registry.url else None,
        store=schema_store(settings) if registry.url else None,
        glue=glue_folder(settings),
    )
    return RegistryDecoders(Fetcher(places.find, compile_schema, wake=wake, unknown_wait_s=registry.unknown_wait_s))


@contextmanager
def waiting_decoders(settings: Settings) -> Iterator[WaitingDecoders | None]:
    """The same for commands, which may wait for a schema. Raises SettingsError."""
    arrived = threading.Event()
    decoders = registry_decoders(settings, wake=arrived.set)
    if decoders is None:
        yield None
        return
    with closing(decoders):
        # As long as the fetcher's first request may take, and a little for the decoder.
        yield WaitingDecoders(decoders, arrived, timeout_s=settings.registry.timeout_s + 1.0)
