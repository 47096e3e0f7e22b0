"""Reads the settings: the only reader of the environment.

From weakest to strongest: defaults, a TOML file (`enricher.toml`, or the one that `ENRICHER_CONFIG` names), a `.env` file,
environment variables. Unknown names are refused.
"""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

import orjson
from dotenv import dotenv_values
from pydantic import Field, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from enricher.errors import SettingsError
from enricher.settings.articles import ArticleSettings, OutputSettings
from enricher.settings.groups import BatchingSettings, ModelSettings, WorkerSettings
from enricher.settings.kafka import KafkaSettings
from enricher.settings.operating import HealthSettings, LogSettings
from enricher.settings.registry import RegistrySettings

PREFIX = "ENRICHER_"
CONFIG_VARIABLE = "ENRICHER_CONFIG"
DEFAULT_CONFIG_FILE = "enricher.toml"
CONFIG_REASON = (
    f"The TOML file to read instead of `{DEFAULT_CONFIG_FILE}` in the working folder. Only as an environment variable."
)
_DOTENV = ".env"

log = logging.getLogger("enricher.settings")


class _TomlSource(TomlConfigSettingsSource):
    """Reads the file like `_refuse_unknown_groups`."""

    def _read_file(self, file_path: Any) -> dict[str, Any]:  # noqa: ANN401  as in the base class; ours is a Path
        return _tables(file_path)


class Settings(BaseSettings):
    """All settings of a worker."""

    # A `.env` may contain variables of other programs; `_refuse_unknown_groups` checks ours.
    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        env_file=_DOTENV,
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
    health: HealthSettings = Field(default_factory=HealthSettings)
    log: LogSettings = Field(default_factory=LogSettings)

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
        toml = _TomlSource(settings_cls, toml_file=_config_file())
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
            self.articles.format == "json" or bool(self.registry.url or self.registry.glue_folder),
            "articles.format=registry needs registry.url or registry.glue_folder",
        )
        topics = {kafka.input_topic, kafka.output_topic, kafka.dead_letter_topic}
        _require(len(topics) == 3, "the input, output and dead-letter topics must differ")
        return self


def _require(holds: bool, message: str) -> None:  # noqa: FBT001  reads as a sentence at its calls
    if not holds:
        raise ValueError(message)


def load_settings(*, tell_files: bool = True) -> Settings:
    """Settings from all sources. Raises SettingsError with every mistake, each with the name of its setting.

    `tell_files`: also log the files that they come from (`log_files`); False if the log is not set up yet.
    """
    try:
        if tell_files:
            log_files()
        _refuse_unknown_groups()
        return Settings()
    except ValidationError as error:
        # pydantic reports a value of a union once per type, with the same words.
        mistakes = dict.fromkeys(map(_explain, error.errors(include_url=False, include_input=False)))
        raise SettingsError("\n".join(mistakes)) from error
    except OSError as error:  # not even the existence of a file could be checked
        raise SettingsError(f"{error.filename}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(_malformed_json() or str(error)) from error


def settings_files() -> Sequence[Path]:
    """The files that settings come from, the weaker one first; a `.env` without one of our settings is left out."""
    dotenv = Path(_DOTENV)
    has_ours = any(name.upper().startswith(PREFIX) for name in _dotenv())
    return [file.absolute() for file in (_config_file(), dotenv if has_ours else None) if file]


def log_files() -> None:
    """Log the settings files, because anyone who may write to the working folder could have put them there."""
    if files := settings_files():
        log.info("settings come from %s", " and ".join(map(str, files)))


def _malformed_json() -> str:
    """The variables that are not valid JSON, with the reason; pydantic-settings names only their group."""
    found, environment = [], {name.upper(): value for name, value in {**_dotenv(), **os.environ}.items()}
    for group, model in Settings.model_fields.items():
        for field, info in getattr(model.annotation, "model_fields", {}).items():
            value = environment.get(name := variable_name(group, field))
            if value is not None and _is_json(info.annotation):
                try:
                    orjson.loads(value)
                except orjson.JSONDecodeError as error:
                    found.append(f"{name}: not JSON: {error}")
    return "\n".join(found)


def _is_json(annotation: object) -> bool:
    """Whether a setting is written as JSON: a table or a list, optional or not."""
    return any(get_origin(each) in {dict, tuple} for each in (annotation, *get_args(annotation)))


def variable_name(group: str, field: str) -> str:
    """The environment variable of a setting."""
    return f"{PREFIX}{group}__{field}".upper()


def _config_file() -> Path | None:
    named = os.environ.get(CONFIG_VARIABLE)
    if named and not Path(named).is_file():
        message = f"{CONFIG_VARIABLE} names {named}, which is not a file"
        raise SettingsError(message)
    path = Path(named or DEFAULT_CONFIG_FILE)
    return path if path.is_file() else None


def _tables(file: Path) -> dict[str, Any]:
    """The content of a TOML file. A byte order mark, which some editors write, is skipped; TOML does not allow it."""
    try:
        return tomllib.loads(file.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _unreadable(file, error) from None


def _dotenv() -> Mapping[str, str | None]:
    file = Path(_DOTENV)
    try:
        return dotenv_values(file) if file.is_file() else {}
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from None


def _unreadable(file: Path, error: Exception) -> SettingsError:
    """An error without the content: a UnicodeDecodeError contains it, and it may be a secret."""
    reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", None) or error
    return SettingsError(f"{file}: {reason}")


def _refuse_unknown_groups() -> None:
    """Refuse names without a known group, which pydantic-settings ignores; it checks the names inside a group."""
    file = _config_file()
    for table in _tables(file) if file else ():
        if table not in Settings.model_fields:
            message = f"{file}: there is no table '{table}'; the tables are {', '.join(Settings.model_fields)}"
            raise SettingsError(message)
    dotenv = _dotenv()
    if CONFIG_VARIABLE in dotenv and CONFIG_VARIABLE not in os.environ:
        raise SettingsError(f"{CONFIG_VARIABLE} has no effect in {_DOTENV}: set it in the environment")
    for name in {*os.environ, *dotenv}:
        if not name.upper().startswith(PREFIX) or name.upper() == CONFIG_VARIABLE:
            continue
        group, delimiter, _field = name[len(PREFIX) :].lower().partition("__")
        if group not in Settings.model_fields or not delimiter:
            known = ", ".join(f"{PREFIX}{known.upper()}__..." for known in Settings.model_fields)
            message = f"{name}: no such setting; the names are {known} (see 'enricher settings')"
            raise SettingsError(message)


def _named(group: str, field: str) -> str:
    """The name of a setting's variable; if its value comes from the TOML file, also the file and the name there."""
    variable = variable_name(group, field)
    if variable not in {name.upper() for name in {*os.environ, *_dotenv()}}:
        file = _config_file()
        table = _tables(file).get(group) if file else None
        if isinstance(table, dict) and field in table:
            return f"{file}: {group}.{field} ({variable})"
    return variable


def _explain(problem: ErrorDetails) -> str:
    location = [str(part) for part in problem["loc"]]
    name = _named(location[0], location[1]) if len(location) > 1 else ".".join(location) or "settings"
    if location[1:2] == ["properties"] and len(location) > 2:
        return f'{name}: \'{location[2]}\' is neither text, a number, true or false, nor {{"file": "..."}}'
    if problem["type"] == "extra_forbidden":
        return f"{name}: no such setting (see 'enricher settings')"
    return f"{name}: {problem['msg'].removeprefix('Value error, ')}"
