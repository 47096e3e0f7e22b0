"""Settings of what the worker connects to: Kafka, the schema registry and the search index."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated, Literal

from platformdirs import user_cache_path
from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from enricher.worker.settings.group import FromFile, Group, Properties, read_properties, require_http


class KafkaSettings(Group):
    """Cluster, topics and group of a worker."""

    bootstrap_servers: str = Field(
        "localhost:9092",
        description="Brokers to connect to first, `host:port`, comma separated, without a scheme such as `SASL_SSL://`.",
    )
    group_id: str = Field("enricher", min_length=1, description="Consumer group; all workers of one pipeline share it.")
    input_topic: str = Field("articles", min_length=1, description="Topic that articles are read from.")
    input_topics: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (),
        max_length=8,
        description="Instead of `input_topic`: topics in the order of their priority, as a JSON list such as "
        '`["articles.now", "articles"]`. While one has a backlog, those after it are not read. All workers of the group '
        "need the same topics.",
    )
    output_topic: str = Field("entities", min_length=1, description="Topic that enriched records are written to.")
    dead_letter_topic: str = Field(
        "articles.dead-letters", min_length=1, description="Topic for inputs that can never be enriched."
    )
    epoch: int = Field(
        0,
        ge=0,
        le=255,
        description="The highest part of `enricher.version`, by which an index keeps the newest record of a key. Raise it, "
        "for all workers of the group, when the input topic is created again or gets more partitions: keys then begin at "
        "lower offsets, and without a higher epoch their newest records lose against older ones. Never lower it.",
    )
    instance: str = Field(
        default_factory=socket.gethostname,
        min_length=1,
        description="Stable name of this worker, unique in the group (a StatefulSet's pod name). Group and name make the "
        "transactional id, by which a restarted worker fences its predecessor. Default: the host name.",
    )
    session_timeout_s: float = Field(
        20.0,
        ge=6,
        le=300,
        description="Seconds after which the group gives the partitions of a silent worker to others.",
    )
    transaction_timeout_s: float = Field(
        15.0,
        ge=5,
        le=300,
        description="Seconds after which the broker aborts an open transaction. Keep it below the session timeout, so "
        "that a dead worker's transaction has ended before its partitions move, and above three times the slowest "
        "commit.",
    )
    request_timeout_s: float = Field(
        10.0,
        gt=0,
        le=120,
        description="Seconds to wait for metadata and offsets. Raise it where brokers are far away or answer late; an "
        "outage is then noticed later.",
    )
    token: Literal["", "msk-iam", "azure", "gcp", "oidc"] = Field(
        "",
        description="Sign in with a token of an identity, which is renewed by itself: `msk-iam` (Amazon MSK), `azure` "
        "(Event Hubs), `gcp` (Google's Managed Service for Apache Kafka), each with the extra `aws`, `azure` or `gcp` "
        "and the identity of the pod or machine; `oidc`: any provider, which `sasl.oauthbearer.` properties name. "
        "Empty: no token.",
    )
    properties: Properties = Field(
        default_factory=dict,
        repr=False,
        description="Any librdkafka property, as a JSON object, e.g. `{\"security.protocol\": \"SSL\"}`; with the prefix "
        "`consumer.` or `producer.` for one client only. Properties that exactly-once needs, or that load code or run "
        "commands, are refused. The instance is appended to `client.id`. A secret may be read from a file: "
        "`{\"sasl.password\": {\"file\": "
        "\"/run/secrets/password\"}}`.",
    )  # fmt: skip

    @field_validator("bootstrap_servers")
    @classmethod
    def _has_no_scheme(cls, text: str) -> str:
        """Refuse a URL, which has a scheme; the message must not repeat it, because it may contain a password."""
        scheme, found, _rest = text.partition("://")
        if found:
            protocol = scheme.rpartition(",")[2].strip().upper()
            known = protocol in {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}
            also = f', and {{"security.protocol": "{protocol}"}} in kafka.properties' if known else ""
            raise ValueError(f"write host:port without a scheme, such as broker:9092{also}")
        return text

    @model_validator(mode="after")
    def _has_one_way_to_name_topics(self) -> KafkaSettings:
        if self.input_topics and "input_topic" in self.model_fields_set:
            raise ValueError("input_topic and input_topics are both set: name all topics in input_topics")
        return self

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input topics in the order of their priority."""
        return self.input_topics or (self.input_topic,)

    def client_properties(self) -> dict[str, str | int | float | bool]:
        """`properties`, with values from files read now. Raises SettingsError."""
        return read_properties(self.properties, "kafka.properties")


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
    cache_dir: Path = Field(
        default_factory=lambda: user_cache_path("enricher") / "schemas",
        description="Folder where fetched schemas are kept by id, for restarts while the registry is away. They are used "
        "only while it does not answer.",
    )
    unknown_wait_s: float = Field(
        30.0,
        ge=0,
        le=600,
        description="Seconds that the articles of an id wait if the registry does not know it, or fails on it while it "
        "answers about others, before they become dead letters: it may be registered late, or a replica of the registry "
        "may lag behind. Their partition waits too. At most ten unknown ids an hour are waited for; beyond that "
        "their articles become dead letters at once.",
    )

    def client_properties(self) -> dict[str, str | int | float | bool]:
        """`properties`, with values from files read now. Raises SettingsError."""
        return read_properties(self.properties, "registry.properties")


class IndexSettings(Group):
    """The search index that `enricher index` writes and checks; the worker uses none of these settings."""

    url: str = Field(
        "",
        repr=False,
        description="Nodes of OpenSearch or Elasticsearch, e.g. `https://search-1:9200`; several of one cluster are comma "
        "separated.",
    )
    name: str = Field(
        "articles",
        pattern=r"^[^A-Z\\/*?\"<>|\s,#:_+-][^A-Z\\/*?\"<>|\s,#:]*$",
        max_length=200,
        description="The index that documents are written to, or an alias with one write index.",
    )
    product: Literal["auto", "opensearch", "elasticsearch"] = Field(
        "auto", description="OpenSearch or Elasticsearch. `auto`: what the server says at the start."
    )
    group_id: str = Field("", description="Consumer group of the indexers. Default: `GROUP_ID.index`.")
    dead_letter_topic: str = Field(
        "",
        description="Topic for records that the index refuses, with the reason. Default: `OUTPUT_TOPIC.index-dead-letters`.",
    )
    document_id: Literal["key", "id"] = Field(
        "key",
        description="What identifies a document. `key`: the record's key, by which a tombstone deletes; the record's id if "
        "it has no key. `id`: the record's id, for readers who get documents by it; records with another key are then dead "
        "letters, because no tombstone could delete their documents.",
    )
    username: str = Field("", description="User for basic authentication.")
    password: SecretStr = Field(SecretStr(""), description="The user's password.")
    password_file: Path | None = Field(
        None, description="File with the password, as Kubernetes mounts secrets. Instead of `password`."
    )
    api_key: SecretStr = Field(SecretStr(""), description="API key in its encoded form, instead of user and password.")
    api_key_file: Path | None = Field(None, description="File with the API key. Instead of `api_key`.")
    aws_region: str = Field(
        "",
        pattern=r"^[a-z0-9-]*$",
        description="Region of an Amazon OpenSearch domain, e.g. `eu-central-1`: requests are signed with the AWS identity "
        "of the pod or machine (SigV4), instead of a password or an API key. Needs the extra `aws`.",
    )
    ca_file: Path | None = Field(
        None, description="Certificates, in PEM, of the authorities that signed the nodes'. Default: the public ones."
    )
    max_batch_documents: int = Field(
        1_000,
        ge=1,
        le=100_000,
        description="Documents of one bulk request at most. It begins with a quarter, grows while requests succeed, and "
        "shrinks when the index is busy (HTTP 429) or finds a request too large (413).",
    )
    retry_max_s: float = Field(
        30.0,
        gt=0,
        le=300,
        description="Longest pause in seconds between two tries of what the index could not take; the first is 0.25 s.",
    )
    give_up_s: float = Field(
        600.0,
        ge=1,
        le=86_400,
        description="Seconds of trying to write the same documents, or to reach the index at the start, before the process "
        "ends with exit code 6.",
    )

    @field_validator("url")
    @classmethod
    def _is_url(cls, text: str) -> str:
        """Refuse a URL that no client can use; the message must not repeat it, because it may contain a password."""
        if "@" in text:
            raise ValueError("user and password have their own settings and do not belong in a URL")
        return require_http(text)

    @model_validator(mode="after")
    def _consistent(self) -> IndexSettings:
        secrets = [("password", self.password, self.password_file), ("api_key", self.api_key, self.api_key_file)]
        for name, value, file in secrets:
            if value.get_secret_value() and file:
                message = f"give either {name} or {name}_file"
                raise ValueError(message)
        with_password, with_key = (bool(value.get_secret_value() or file) for _, value, file in secrets)
        if self.aws_region and (with_key or with_password or self.username):
            raise ValueError("give either aws_region, or a password or an API key")
        if with_key and (with_password or self.username):
            raise ValueError("give either an API key or a user with a password")
        if with_password != bool(self.username):
            raise ValueError("a user needs a password (password or password_file), and a password a username")
        return self

    def dead_letters_of(self, output_topic: str) -> str:
        """The indexers' dead-letter topic."""
        return self.dead_letter_topic or f"{output_topic}.index-dead-letters"

    def credentials(self) -> tuple[str, str] | None:
        """User and password, with the password read from its file now. Raises SettingsError."""
        return (self.username, _secret("password", self.password, self.password_file)) if self.username else None

    def key(self) -> str:
        """The API key, read from its file now; empty without one. Raises SettingsError."""
        return _secret("api_key", self.api_key, self.api_key_file)


def _secret(name: str, value: SecretStr, file: Path | None) -> str:
    return FromFile(file=file).read(name, f"index.{name}_file") if file else value.get_secret_value()
