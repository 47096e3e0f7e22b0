"""The settings: the only reader of the environment. One class per room, each field with unit, default and reason.

From weakest to strongest: defaults, a TOML file (`enricher.toml`, or the one that `ENRICHER_CONFIG` names), a `.env` file,
environment variables. Unknown names are refused.
"""

from __future__ import annotations

import os
import socket
import tomllib
from pathlib import Path
from typing import Literal, get_origin

import orjson
from dotenv import dotenv_values
from platformdirs import user_cache_path
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from enricher.errors import SettingsError

PREFIX = "ENRICHER_"
CONFIG_VARIABLE = "ENRICHER_CONFIG"
DEFAULT_CONFIG_FILE = "enricher.toml"


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KafkaSettings(_Group):
    """Which cluster, which topics, as whom."""

    bootstrap_servers: str = Field("localhost:9092", description="Brokers to ask first, `host:port`, comma separated.")
    group_id: str = Field("enricher", min_length=1, description="Consumer group; all workers of one pipeline share it.")
    input_topic: str = Field("articles", min_length=1, description="Topic that articles are read from.")
    output_topic: str = Field("entities", min_length=1, description="Topic that enriched records are written to.")
    dead_letter_topic: str = Field(
        "articles.dead-letters", min_length=1, description="Topic for inputs that can never be enriched."
    )
    instance: str = Field(
        default_factory=socket.gethostname,
        min_length=1,
        description="Stable name of this worker, unique in the group (a StatefulSet's pod name): with the group it makes "
        "the transactional id, by which a restarted worker fences what it left behind. Default: the host name.",
    )
    session_timeout_s: float = Field(
        20.0, ge=6, le=300, description="Seconds after which the group gives a silent worker's partitions to others."
    )
    max_poll_interval_s: float = Field(
        120.0,
        ge=10,
        le=3600,
        description="Seconds that one turn of the loop may take before the group takes it for dead.",
    )
    transaction_timeout_s: float = Field(
        15.0,
        ge=5,
        le=300,
        description="Seconds after which the broker aborts an open transaction. Below the session timeout, so that a dead "
        "worker's transaction is settled when its partitions move; above three times the slowest commit.",
    )
    request_timeout_s: float = Field(10.0, gt=0, le=120, description="Seconds to wait for metadata and offsets.")
    properties: dict[str, str | int | float | bool] = Field(
        default_factory=dict,
        description="Any librdkafka property, as a JSON object, e.g. `{\"security.protocol\": \"SSL\"}`; with the prefix "
        "`consumer.` or `producer.` for one client only. What exactly-once needs cannot be changed.",
    )  # fmt: skip


class ModelSettings(_Group):
    """Which model, on which device."""

    source: str = Field(
        "newswire-minilm",
        description="Folder of a Hugging Face token-classification checkpoint (safetensors), or `newswire-minilm`, which "
        "is built in.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="`cuda` refuses to start without CUDA; `auto` takes it where it works."
    )
    precision: Literal["auto", "fp32"] = Field("auto", description="Number format of the model.")
    lanes: int | None = Field(
        None, ge=1, le=64, description="Runs at the same time on the device. Default: one per CPU core, two on a GPU."
    )
    cache_dir: Path = Field(
        default_factory=lambda: user_cache_path("enricher"), description="Folder for graphs made from checkpoints."
    )


class BatchingSettings(_Group):
    """How windows are cut and gathered."""

    max_batch_tokens: int | None = Field(
        None,
        ge=16,
        le=1_000_000,
        description="Tokens (padding included) of one batch. Default: 512 on CPU, 8192 on a GPU.",
    )
    max_wait_ms: float = Field(50.0, ge=0, le=60_000, description="Milliseconds that a window may wait for company.")
    bucket_edges: tuple[int, ...] = Field(
        (16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448, 480, 512),
        min_length=1,
        description="Longest window of each length bucket, in tokens, growing.",
    )
    max_window_tokens: int | None = Field(
        None,
        ge=8,
        description="Tokens of one window, special tokens included. Default: what suits the model (`enricher.json` in its "
        "folder), else 256.",
    )
    overlap_tokens: int | None = Field(
        None,
        ge=0,
        description="Tokens that neighbouring windows of a long article share. Default: what suits the model, else 64.",
    )
    run_overhead_tokens: int = Field(
        16,
        ge=0,
        description="Fixed cost of one run, in tokens: a batch that is due takes shorter windows along up to this.",
    )


class ArticleSettings(_Group):
    """What counts as an article, and how large things may be."""

    max_article_chars: int = Field(1_000_000, ge=1, description="Characters of title and body; more is a dead letter.")
    max_article_tokens: int = Field(
        100_000, ge=1, description="Tokens of title and body; what to do beyond: `too_long`."
    )
    too_long: Literal["truncate", "dead_letter"] = Field(
        "truncate", description="Above `max_article_tokens`: enrich the beginning and say so, or dead-letter."
    )
    max_record_bytes: int = Field(
        1_000_000,
        ge=1_000,
        description="Bytes of an enriched record; more is a dead letter. At most the output topic's `max.message.bytes`.",
    )
    max_dead_letter_bytes: int = Field(
        16_000_000,
        ge=10_000,
        description="Bytes of a dead letter; above, its value is left out. At most the topic's `max.message.bytes`.",
    )


class WorkerSettings(_Group):
    """The bounds of every queue and wait."""

    max_in_flight_articles: int = Field(
        2_000, ge=1, description="Articles read and not yet committed: what a crash or a rebalance makes work again."
    )
    max_in_flight_bytes: int = Field(256_000_000, ge=1_000_000, description="Bytes of the same.")
    backlog_batches: int = Field(32, ge=1, description="Batches' worth of tokens to hold, so that batches are full.")
    tokenizer_threads: int | None = Field(
        None, ge=1, le=64, description="Threads that tokenise. Default: one for each two cores, four at most."
    )
    articles_per_tokenizer_call: int = Field(8, ge=1, le=1_000, description="Articles per call of the tokenizer.")
    publish_interval_ms: float = Field(
        250.0, ge=0, le=60_000, description="Milliseconds between transactions: lower is fresher, higher is cheaper."
    )
    poll_interval_ms: float = Field(
        20.0, gt=0, le=10_000, description="Milliseconds between looks for new articles while the model is busy."
    )
    idle_wait_ms: float = Field(
        250.0,
        gt=0,
        le=10_000,
        description="Milliseconds of one wait when there is nothing to do; also how fast it stops.",
    )
    pause_after_s: float = Field(
        2.0, ge=0, description="Seconds without room before the partitions are paused, so that polling can go on."
    )
    stall_timeout_s: float = Field(
        60.0, ge=1, description="Seconds for one turn of the loop; beyond, the watchdog ends the process."
    )
    engine_timeout_s: float = Field(120.0, ge=1, description="Seconds without a finished batch while some are running.")
    drain_timeout_s: float = Field(20.0, ge=0, description="Seconds to finish what is on the device when stopping.")
    recovery_timeout_s: float = Field(300.0, ge=1, description="Seconds to try one recovery before the process ends.")
    max_recoveries_in_a_row: int = Field(
        10, ge=1, description="Recoveries without a successful transaction between them before the process ends."
    )


class Settings(BaseSettings):
    """All settings of a worker."""

    # Other programs' variables may stand in the same `.env`; ours are checked by `_refuse_unknown_groups`.
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", env_file=".env", extra="ignore", frozen=True
    )

    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    model: ModelSettings = Field(default_factory=ModelSettings)
    batching: BatchingSettings = Field(default_factory=BatchingSettings)
    articles: ArticleSettings = Field(default_factory=ArticleSettings)
    worker: WorkerSettings = Field(default_factory=WorkerSettings)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Strongest first: arguments, environment, `.env`, the TOML file."""
        del file_secret_settings
        toml = TomlConfigSettingsSource(settings_cls, toml_file=_config_file())
        return init_settings, env_settings, dotenv_settings, toml

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        kafka, batching, worker = self.kafka, self.batching, self.worker
        _require(
            kafka.transaction_timeout_s < kafka.session_timeout_s,
            "kafka.transaction_timeout_s must be below kafka.session_timeout_s",
        )
        _require(list(batching.bucket_edges) == sorted(set(batching.bucket_edges)), "batching.bucket_edges must grow")
        _require(
            worker.stall_timeout_s > kafka.request_timeout_s,
            "worker.stall_timeout_s must be above kafka.request_timeout_s",
        )
        topics = {kafka.input_topic, kafka.output_topic, kafka.dead_letter_topic}
        _require(len(topics) == 3, "the input, output and dead-letter topics must differ")
        return self


def _require(holds: bool, message: str) -> None:  # noqa: FBT001  reads as a sentence where it is used
    if not holds:
        raise ValueError(message)


def load_settings() -> Settings:
    """Settings from all sources; raises SettingsError with every mistake, each with the name to look for."""
    try:
        _refuse_unknown_groups()
        return Settings()
    except ValidationError as error:
        message = "\n".join(_explain(problem) for problem in error.errors(include_url=False, include_input=False))
        raise SettingsError(message) from error
    except tomllib.TOMLDecodeError as error:
        message = f"{_config_file()}: {error}"
        raise SettingsError(message) from error
    except ValueError as error:
        raise SettingsError(_malformed_json() or str(error)) from error


def _malformed_json() -> str:
    """The variables that are not the JSON that they have to be, with the reason: the library names only their group."""
    found, environment = [], {name.upper(): value for name, value in os.environ.items()}
    for group, model in Settings.model_fields.items():
        for field, info in getattr(model.annotation, "model_fields", {}).items():
            value = environment.get(name := variable_name(group, field))
            if value is not None and get_origin(info.annotation) in {dict, tuple}:
                try:
                    orjson.loads(value)
                except orjson.JSONDecodeError as error:
                    found.append(f"{name}: not JSON: {error}")
    return "\n".join(found)


def variable_name(group: str, field: str) -> str:
    """The environment variable of a setting."""
    return f"{PREFIX}{group}__{field}".upper()


def _config_file() -> Path | None:
    named = os.environ.get(CONFIG_VARIABLE)
    if named and not Path(named).is_file():
        message = f"{CONFIG_VARIABLE} names {named}, which is no file"
        raise SettingsError(message)
    path = Path(named or DEFAULT_CONFIG_FILE)
    return path if path.is_file() else None


def _refuse_unknown_groups() -> None:
    """pydantic-settings checks the names inside a group, but overlooks variables that name no group at all."""
    file = _config_file()
    for table in tomllib.loads(file.read_text("utf-8")) if file else ():
        if table not in Settings.model_fields:
            message = f"{file}: there is no table '{table}'; they are {', '.join(Settings.model_fields)}"
            raise SettingsError(message)
    dotenv = dotenv_values(".env") if Path(".env").is_file() else {}
    for name in {*os.environ, *dotenv}:
        if not name.upper().startswith(PREFIX) or name.upper() == CONFIG_VARIABLE:
            continue
        group, delimiter, _field = name[len(PREFIX) :].lower().partition("__")
        if group not in Settings.model_fields or not delimiter:
            known = ", ".join(f"{PREFIX}{known.upper()}__..." for known in Settings.model_fields)
            message = f"{name}: no such setting; they are called {known} (see 'enricher settings')"
            raise SettingsError(message)


def _explain(problem: ErrorDetails) -> str:
    location = [str(part) for part in problem["loc"]]
    name = variable_name(location[0], location[1]) if len(location) > 1 else ".".join(location) or "settings"
    return f"{name}: {problem['msg']}"
