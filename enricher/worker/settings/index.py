"""Settings of the search index: where it is, how to sign in, and how much is written at once."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from enricher.worker.settings.group import FromFile, Group, require_http


class IndexSettings(Group):
    """The search index that `enricher index` writes and checks; the worker reads none of them."""

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
        "auto", description="Which of the two it is. `auto`: what the server says at the start."
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
    ca_file: Path | None = Field(
        None, description="Certificates, in PEM, of the authorities that signed the nodes'. Default: the public ones."
    )
    verify_certificates: bool = Field(
        default=True, description="Check the nodes' certificates. Without it, anybody on the way can read the password."
    )
    max_batch_documents: int = Field(
        1_000,
        ge=1,
        le=100_000,
        description="Documents of one bulk request at most. It begins with a quarter, grows while requests succeed, and "
        "shrinks when the index is busy (HTTP 429) or finds a request too large (413).",
    )
    max_batch_bytes: int = Field(
        8_000_000,
        ge=10_000,
        le=95_000_000,
        description="Bytes of one bulk request at most, unless a single document is larger; the nodes refuse more than "
        "100 MB unless they are configured otherwise.",
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
        """Refuse what no client can use; the message must not repeat the URL, which may contain a password."""
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
