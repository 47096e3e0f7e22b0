"""Reads the settings: the only reader of the environment. A Python program may also give them.

Each source overrides the earlier ones: defaults, a TOML file (`enricher.toml`, or the one that `ENRICHER_CONFIG` names),
environment variables. Unknown names are refused. A message names each wrong setting as it was written, with pydantic's words
for the mistake, and never quotes a value.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import reduce
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from enricher.errors import SettingsError
from enricher.worker.settings.articles import ArticleSettings, CatalogueSettings, OutputSettings
from enricher.worker.settings.connections import IndexSettings, KafkaSettings, RegistrySettings
from enricher.worker.settings.worker import (
    NAME_PATTERN,
    TASKS,
    WINDOW_ARTICLES,
    BatchingSettings,
    DeadLetterSettings,
    HealthSettings,
    LogSettings,
    ModelSettings,
    TaskSettings,
    WorkerSettings,
    check_tasks,
)

PREFIX = "ENRICHER_"
CONFIG_VARIABLE = "ENRICHER_CONFIG"
DEFAULT_CONFIG_FILE = "enricher.toml"
CONFIG_REASON = (
    f"The TOML file to read instead of `{DEFAULT_CONFIG_FILE}` in the working folder. Only as an environment variable; the "
    "option `--config FILE`, before or after any command, takes precedence."
)
_LEAST_ALIKE = 0.8
"""The least ratio of difflib for a similar name. Its default of 0.6 finds names that mean something else."""
_OF_A_SERVICE = re.compile(
    rf"{PREFIX}(?:[A-Z0-9]+_)*?"
    r"(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9]+)*|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?|(?P<url>PORT))"
)
"""Names of the variables that a pod has for each Service: `ENRICHER_DEMO_SERVICE_HOST` for one called `enricher-demo`."""
Groups = Mapping[str, FieldInfo]
"""The groups of the settings by name."""
log = logging.getLogger("enricher.worker.settings")


class _TomlSource(TomlConfigSettingsSource):
    """Reads the TOML file as `refuse_unknown_groups` does."""

    def _read_file(self, file_path: Any) -> dict[str, Any]:  # noqa: ANN401  as in the base class; ours is a Path
        return read_tables(file_path)


class Settings(BaseSettings):
    """All settings of a worker."""

    # The environment has variables of other programs; `refuse_unknown_groups` checks ours.
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", extra="ignore", frozen=True, hide_input_in_errors=True
    )

    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    model: ModelSettings = Field(default_factory=ModelSettings)
    batching: BatchingSettings = Field(default_factory=BatchingSettings)
    articles: ArticleSettings = Field(default_factory=ArticleSettings)
    catalogue: CatalogueSettings = Field(default_factory=CatalogueSettings)
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
        """Arguments, environment, TOML file: each source overrides the later ones."""
        del dotenv_settings, file_secret_settings
        return init_settings, env_settings, _TomlSource(settings_cls, toml_file=config_file())

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
            self.articles.format != "registry" or bool(self.registry.url),
            "articles.format=registry needs registry.url",
        )
        _require(
            not self.dead_letters.max_ratio or self.dead_letters.max_ratio * WINDOW_ARTICLES >= 1,
            f"dead_letters.max_ratio of {WINDOW_ARTICLES:,} articles must be at least one article; 0 is no limit",
        )
        _require(
            self.catalogue.path is not None or self.catalogue == type(self.catalogue)(),
            "the other settings of catalogue have no effect without catalogue.path",
        )
        check_tasks(self.tasks, of_model=self.model.model_fields_set)
        topics = {*kafka.inputs, kafka.output_topic, kafka.dead_letter_topic}
        _require(len(topics) == len(kafka.inputs) + 2, "the input, output and dead-letter topics must differ")
        return self


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


def load_settings(*, log_files: bool = True) -> Settings:
    """Settings from all sources. Raises SettingsError with every mistake, each with the name of its setting.

    `log_files`: also log the file that they come from; False if the log is not set up yet.
    """
    try:
        if log_files:
            log_settings_file()
        refuse_unknown_groups(Settings.model_fields)
        return Settings()
    except ValidationError as error:
        raise SettingsError(in_words(error, Settings.model_fields, written_name)) from error
    except OSError as error:  # not even whether a file exists can be found out
        raise SettingsError(f"{error.filename}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(malformed_json(error.__cause__) or str(error)) from error


def given_settings(groups: Mapping[str, Any]) -> Settings:
    """Settings from these groups alone, without the environment and files. Raises SettingsError."""
    try:
        return _GivenSettings(**groups)
    except ValidationError as error:
        raise SettingsError(in_words(error, Settings.model_fields, python_name)) from error


def _require(holds: bool, message: str) -> None:  # noqa: FBT001  reads as a sentence at its calls
    if not holds:
        raise ValueError(message)


def settings_file() -> Path | None:
    """The file that settings come from; None if there is none."""
    file = config_file()
    return file and file.absolute()


def log_settings_file() -> None:
    """Log where settings come from: anyone who may write to the working folder could have put the file there."""
    if file := settings_file():
        log.info("settings come from %s", file)


def set_config_file(file: Path) -> None:
    """Read settings from this TOML file, in this process and in processes that it starts, instead of an earlier file."""
    os.environ[CONFIG_VARIABLE] = str(file)


def config_file() -> Path | None:
    """The TOML file, or None. Raises SettingsError if `ENRICHER_CONFIG` names a file that does not exist."""
    named = os.environ.get(CONFIG_VARIABLE)
    if named and not Path(named).is_file():
        message = f"{CONFIG_VARIABLE} names {named}, which is not a file"
        raise SettingsError(message)
    path = Path(named or DEFAULT_CONFIG_FILE)
    return path if path.is_file() else None


def read_tables(file: Path) -> dict[str, Any]:
    """The content of a TOML file. Skips a byte order mark, which some editors write and TOML does not allow."""
    try:
        return tomllib.loads(file.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _unreadable(file, error) from None


def variables() -> dict[str, str]:
    """The variables of the environment, with names in upper case."""
    return {name.upper(): value for name, value in os.environ.items()}


def _unreadable(file: Path, error: Exception) -> SettingsError:
    """An error without the content that a UnicodeDecodeError has, which may be a secret."""
    reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", None) or error
    return SettingsError(f"{file}: {reason}")


def refuse_unknown_groups(groups: Groups) -> None:
    """Refuse names without a known group. pydantic-settings ignores them; it checks only the names inside a group."""
    file = config_file()
    for table in read_tables(file) if file else ():
        if table not in groups:
            raise SettingsError(f"{file}: {table}: {_unknown(table, groups)}")
    # A port may be a Service's, or a mistake: `ENRICHER_HEALTH_PORT` for `ENRICHER_HEALTH__PORT`. Kubernetes gives it a URL.
    of_services = {
        name
        for name, value in os.environ.items()
        if (match := _OF_A_SERVICE.fullmatch(name)) and (not match["url"] or "://" in value)
    }
    for name in os.environ.keys() - of_services:
        group, delimiter, _field = name.lower().removeprefix(PREFIX.lower()).partition("__")
        known = bool(delimiter) != (group == TASKS) and group in groups
        if name.upper().startswith(PREFIX) and name.upper() != CONFIG_VARIABLE and not known:
            raise SettingsError(f"{name}: {_unknown(name, groups)}")


def malformed_json(cause: BaseException | None) -> str:
    """The variable whose value is not JSON, with the reason; pydantic-settings names only its group."""
    if not isinstance(cause, json.JSONDecodeError):
        return ""
    names = [name for name, value in variables().items() if value == cause.doc and name.startswith(PREFIX)]
    return f"{' or '.join(names)}: not JSON: {cause}"


def in_words(error: ValidationError, groups: Groups, named: Callable[[Sequence[str]], str]) -> str:
    """A line for each wrong setting. `named`: the name of a path such as `("kafka", "group_id")` for whoever wrote it."""
    lines: dict[str, str] = {}
    for problem in error.errors(include_url=False, include_input=False):
        # The fourth part is a type of a union, or lies within a value.
        name = named([str(part) for part in problem["loc"][:3]])
        unknown = problem["type"] == "extra_forbidden"
        words = _unknown(name, groups) if unknown else problem["msg"].removeprefix("Value error, ")
        lines.setdefault(name, f"{name}: {words}")
    return "\n".join(lines.values())


def python_name(path: Sequence[str]) -> str:
    """The name of a setting in a Python program."""
    return ".".join(path) or "settings"


def written_name(path: Sequence[str]) -> str:
    """The name of a setting as its variable, or as the TOML file and the name there; both if either may be meant."""
    whole = 1 if path[:1] == [TASKS] else 2  # all tasks are one variable
    if len(path) < whole:
        return python_name(path)
    variable, rest, file = variable_name(*path[:whole]), path[whole:], config_file()
    in_environment = variable in variables()
    names = [": ".join([variable, ".".join(rest)]) if rest else variable] if in_environment else []
    # A field that is missing is set nowhere: then the table counts that lacks it.
    if file and (_holds(tables := read_tables(file), path) or (not in_environment and _holds(tables, path[:-1]))):
        names.append(f"{file}: {python_name(path)}")
    return " or ".join(names if rest else names[:1]) or variable


def variable_name(group: str, field: str | None = None) -> str:
    """The environment variable of a setting, or of a group that is one JSON object."""
    return f"{PREFIX}{group}{'' if field is None else f'__{field}'}".upper()


def _holds(tables: Any, path: Sequence[str]) -> bool:  # noqa: ANN401  any TOML
    return reduce(lambda at, name: at.get(name) if isinstance(at, dict) else None, path, tables) is not None


def _unknown(name: str, groups: Groups) -> str:
    """The words for a name that no setting has, with the nearest one if it is almost the same."""
    # Tasks have no fields here: their names are the users'.
    fields = {group: getattr(info.annotation, "model_fields", ()) for group, info in groups.items()}
    known = [*groups, *(f"{group}.{field}" for group, names in fields.items() for field in names)]
    plain = name.rpartition(": ")[2].lower().removeprefix(PREFIX.lower()).replace("__", ".")
    meant = "".join(get_close_matches(plain, known, n=1, cutoff=_LEAST_ALIKE))
    if meant and name.upper().startswith(PREFIX):
        meant = variable_name(*meant.split("."))
    return f"no such setting{meant and f'; did you mean {meant}?'} (see 'enricher settings', or deploy/upgrading.md)"
