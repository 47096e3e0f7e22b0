"""Reads the settings: the only reader of the environment. A Python program may also give them.

Sources, each of which overrides those before it: defaults, a TOML file (`enricher.toml`, or the one that `ENRICHER_CONFIG`
names), a `.env` file, environment variables. Unknown names are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from enricher.errors import SettingsError
from enricher.worker.settings.articles import ArticleSettings, OutputSettings
from enricher.worker.settings.files import DOTENV, PREFIX, config_file, log_settings_files, read_tables
from enricher.worker.settings.index import IndexSettings
from enricher.worker.settings.kafka import KafkaSettings
from enricher.worker.settings.mistakes import in_words, malformed_json, python_name, refuse_unknown_groups, written_name
from enricher.worker.settings.registry import RegistrySettings
from enricher.worker.settings.tasks import NAME_PATTERN, TaskSettings, check_tasks
from enricher.worker.settings.worker import (
    BatchingSettings,
    DeadLetterSettings,
    HealthSettings,
    LogSettings,
    ModelSettings,
    WorkerSettings,
)


class _TomlSource(TomlConfigSettingsSource):
    """Reads the TOML file as `refuse_unknown_groups` does."""

    def _read_file(self, file_path: Any) -> dict[str, Any]:  # noqa: ANN401  as in the base class; ours is a Path
        return read_tables(file_path)


class Settings(BaseSettings):
    """All settings of a worker."""

    # A `.env` may contain variables of other programs; `refuse_unknown_groups` checks ours.
    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_file=DOTENV,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
    )

    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    model: ModelSettings = Field(default_factory=ModelSettings)
    batching: BatchingSettings = Field(default_factory=BatchingSettings)
    articles: ArticleSettings = Field(default_factory=ArticleSettings)
    output: OutputSettings = Field(default_factory=OutputSettings)
    registry: RegistrySettings = Field(default_factory=RegistrySettings)
    worker: WorkerSettings = Field(default_factory=WorkerSettings)
    dead_letters: DeadLetterSettings = Field(default_factory=DeadLetterSettings)
    health: HealthSettings = Field(default_factory=HealthSettings)
    index: IndexSettings = Field(default_factory=IndexSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    tasks: dict[Annotated[str, Field(pattern=NAME_PATTERN)], TaskSettings] = Field(default_factory=dict)
    """The tasks by name. Empty: the worker finds entities by `model.source`."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, environment, `.env`, TOML file: each overrides those after it."""
        del file_secret_settings
        toml = _TomlSource(settings_cls, toml_file=config_file())
        return init_settings, env_settings, dotenv_settings, toml

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        kafka, batching, worker = self.kafka, self.batching, self.worker
        _require(
            kafka.transaction_timeout_s < kafka.session_timeout_s,
            "kafka.transaction_timeout_s must be below kafka.session_timeout_s",
        )
        edges = list(batching.bucket_edges or ())
        _require(
            edges == sorted(set(edges)) and min(edges, default=1) > 0, "batching.bucket_edges must increase, from 1 on"
        )
        _require(
            worker.stall_timeout_s > kafka.request_timeout_s,
            "worker.stall_timeout_s must be above kafka.request_timeout_s",
        )
        _require(
            self.output.format == "json" or bool(self.registry.url),
            f"output.format={self.output.format} needs registry.url",
        )
        _require(
            self.articles.format != "registry" or bool(self.registry.url or self.registry.glue_folder),
            "articles.format=registry needs registry.url or registry.glue_folder",
        )
        letters = self.dead_letters
        _require(
            not letters.max_ratio or letters.max_ratio * letters.window_articles >= 1,
            "dead_letters.max_ratio of dead_letters.window_articles must be at least one article; 0 is no limit",
        )
        check_tasks(self.tasks, of_model=self.model.model_fields_set)
        topics = {*kafka.inputs, kafka.output_topic, kafka.dead_letter_topic}
        _require(len(topics) == len(kafka.inputs) + 2, "the input, output and dead-letter topics must differ")
        return self


def _require(holds: bool, message: str) -> None:  # noqa: FBT001  reads as a sentence at its calls
    if not holds:
        raise ValueError(message)


def load_settings(*, log_files: bool = True) -> Settings:
    """Settings from all sources. Raises SettingsError with every mistake, each with the name of its setting.

    `log_files`: also log the files that they come from; False if the log is not set up yet.
    """
    try:
        if log_files:
            log_settings_files()
        refuse_unknown_groups(Settings.model_fields)
        return Settings()
    except ValidationError as error:
        raise SettingsError(in_words(error, Settings.model_fields, written_name)) from error
    except OSError as error:  # not even whether a file exists can be found out
        raise SettingsError(f"{error.filename}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(malformed_json(error.__cause__) or str(error)) from error


class _GivenSettings(Settings):
    """Settings that come from arguments alone."""

    model_config = SettingsConfigDict(extra="forbid")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments only."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)


def given_settings(groups: Mapping[str, Any]) -> Settings:
    """Settings from these groups alone, without the environment and files. Raises SettingsError."""
    try:
        return _GivenSettings(**groups)
    except ValidationError as error:
        raise SettingsError(in_words(error, Settings.model_fields, python_name)) from error
