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
        description="Properties of Confluent's client of a registry, as a JSON object: `basic.auth.user.info`, "
        "`bearer.auth.token` or the other `bearer.auth.` ones (OAuth), `ssl.ca.location`, `ssl.certificate.location`, "
        "`ssl.key.location`, `ssl.key.password`, `proxy`. A secret may be read from a file: "
        '`{"basic.auth.user.info": {"file": "/run/secrets/registry"}}`.',
    )
    glue_folder: Path | None = Field(
        None,
        description="Folder with the schemas of AWS Glue frames: `UUID.avsc`, `UUID.proto` or `UUID.json`, in lower case. "
        "The worker never calls Glue. Files may be added at any time.",
    )
    cache_dir: Path = Field(
        default_factory=lambda: user_cache_path("enricher") / "schemas",
        description="Folder where fetched schemas are kept by id, for restarts while the registry is away. They are used "
        "only while it does not answer.",
    )
    timeout_s: float = Field(
        10.0,
        gt=0,
        le=120,
        description="Seconds for connecting to one URL of the registry, and for each part of its answer.",
    )
    unknown_wait_s: float = Field(
        30.0,
        ge=0,
        le=600,
        description="Seconds that the articles of an id wait if the registry does not know it, or fails on it while it "
        "answers about others, before they become dead letters: it may be registered late, or a replica of the registry "
        "may lag behind. Their partition waits too. Ten ids an hour are waited for in vain; beyond that an unknown "
        "one counts at once.",
    )
    max_schema_bytes: int = Field(
        1_000_000,
        ge=1_000,
        le=100_000_000,
        description="Bytes of one schema with all that it refers to; the records of a larger one become dead letters.",
    )

    def client_properties(self) -> dict[str, str | int | float | bool]:
        """`properties`, with values from files read now. Raises SettingsError."""
        return read_properties(self.properties, "registry.properties")
