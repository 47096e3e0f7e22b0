"""Settings -> what is asked of a schema registry: by the worker, at the start, and by commands."""

from __future__ import annotations

from collections.abc import Callable

from enricher.codec.formats import compile_schema, require_formats
from enricher.codec.schemas import Compile
from enricher.errors import SettingsError
from enricher.registry.client import RegistryClient
from enricher.registry.config import RegistryConfig, registry_config
from enricher.registry.decoders import RegistryDecoders
from enricher.registry.fetcher import Fetcher
from enricher.registry.glue import GlueFolder
from enricher.registry.origins import Origins
from enricher.registry.queue import Patience
from enricher.registry.store import SchemaStore
from enricher.registry.subjects import SubjectIds
from enricher.settings import Settings


def check_registry(settings: Settings) -> None:
    """Check what the worker needs of a registry, before the model is loaded. Connects to nothing; raises SettingsError."""
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
    return RegistryClient(_config(settings))


def schema_store(settings: Settings) -> SchemaStore:
    """The schemas that are kept of this registry. Raises SettingsError."""
    registry = settings.registry
    # The order of the URLs does not matter: they are one registry.
    urls = ", ".join(sorted(_config(settings).urls))
    return SchemaStore(registry.cache_dir, urls, max_schema_bytes=registry.max_schema_bytes)


def subject_ids(settings: Settings) -> SubjectIds:
    """What tells the id of our own schema. Raises SettingsError."""
    return SubjectIds(registry_client(settings), schema_store(settings))


def registry_decoders(
    settings: Settings, *, wake: Callable[[], None], compile_schema: Compile = compile_schema
) -> RegistryDecoders | None:
    """The decoders of records that name a schema, with a running fetcher; None if the settings read none.

    The caller closes them. Raises SettingsError.
    """
    registry = settings.registry
    if settings.articles.format != "registry":
        return None
    check_registry(settings)
    glue = (
        GlueFolder(registry.glue_folder, max_schema_bytes=registry.max_schema_bytes) if registry.glue_folder else None
    )
    client, store = (registry_client(settings), schema_store(settings)) if registry.url else (None, None)
    patience = Patience(registry.retry_max_s, registry.unknown_wait_s, registry.give_up_s)
    return RegistryDecoders(Fetcher(Origins(client, store, glue), compile_schema, wake=wake, patience=patience))


def _config(settings: Settings) -> RegistryConfig:
    registry = settings.registry
    return registry_config(
        registry.url,
        registry.client_properties(),
        timeout_s=registry.timeout_s,
        max_schema_bytes=registry.max_schema_bytes,
    )
