"""Settings of the schema registry."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from platformdirs import user_cache_path
from pydantic import AfterValidator, Field

from enricher.worker.settings.group import Group, Properties, read_properties, require_http


class RegistrySettings(Group):
    """The sources of schemas, and how they are kept."""

    url: Annotated[str, AfterValidator(require_http)] = Field(
        "",
        repr=False,
        description="Schema registry with Confluent's API, e.g. `https://registry:8081`; several are comma separated and "
        "tried in this order. Needed for `articles.format=registry` and for `output.format` other than `json`.",
    )
    properties: Properties = Field(
        default_factory=dict,
        repr=False,
        description="Properties of the registry's client, as a JSON object with Confluent's names: "
        "`basic.auth.user.info`, `bearer.auth.token`, `ssl.ca.location`, `ssl.certificate.location`, "
        "`ssl.key.location`, `ssl.key.password`. A secret may be read from a file: "
        '`{"basic.auth.user.info": {"file": "/run/secrets/registry"}}`.',
    )
    glue_folder: Path | None = Field(
        None,
        description="Folder with the schemas of AWS Glue frames: `UUID.avsc`, `UUID.proto` or `UUID.json`, in lower case. "
        "The worker never calls Glue. Files may be added at any time.",
    )
    cache_dir: Path = Field(
        default_factory=lambda: user_cache_path("enricher") / "schemas",
        description="Folder where fetched schemas are kept by id, for restarts while the registry is away. Ids never "
        "change: what was kept first counts until the folder is deleted, and a difference is logged.",
    )
    timeout_s: float = Field(
        10.0,
        gt=0,
        le=120,
        description="Seconds for one request to one URL of the registry, from connecting to the last byte.",
    )
    retry_max_s: float = Field(
        30.0,
        gt=0,
        le=600,
        description="Longest pause in seconds between two tries while the registry does not answer; the first is 0.5 s.",
    )
    unknown_wait_s: float = Field(
        1.0,
        ge=0,
        le=600,
        description="Seconds that the articles of an id wait if the registry does not know it, before they become dead "
        "letters: it may be registered late, or a replica of the registry may lag behind. The id is requested again during "
        "this time, and later at intervals that grow with the time for which it has been unknown, up to 30 s. Many "
        "unknown ids in a row, each of a single article, do not wait.",
    )
    give_up_s: float = Field(
        300.0,
        ge=0,
        le=86_400,
        description="Seconds for which requests for an id must fail (HTTP 403 or 500, for instance), at least five "
        "times, before its articles become dead letters. Only while the registry answers requests for other ids: in an "
        "outage, articles wait for ever. 0: they always do.",
    )
    max_schema_bytes: int = Field(
        1_000_000,
        ge=1_000,
        le=100_000_000,
        description="Bytes of one schema with all that it refers to; the records of a larger one become dead letters.",
    )
    auto_register: bool = Field(
        default=False,
        description="Register the schema of records at the start if its subject lacks it. Otherwise only "
        "`enricher schemas register` does.",
    )

    def client_properties(self) -> dict[str, str | int | float | bool]:
        """`properties`, with values from files read now. Raises SettingsError."""
        return read_properties(self.properties, "registry.properties")
