"""The files that settings come from, as text: a TOML file and `.env`. What they mean is decided in `sources`."""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dotenv import dotenv_values

from enricher.errors import SettingsError

PREFIX = "ENRICHER_"
CONFIG_VARIABLE = "ENRICHER_CONFIG"
DEFAULT_CONFIG_FILE = "enricher.toml"
CONFIG_REASON = (
    f"The TOML file to read instead of `{DEFAULT_CONFIG_FILE}` in the working folder. Only as an environment variable; the "
    "option `--config FILE`, before or behind any command, is stronger."
)
DOTENV = ".env"

log = logging.getLogger("enricher.worker.settings")


def variable_name(group: str, field: str | None = None) -> str:
    """The environment variable of a setting, or of a group that is one JSON object."""
    return f"{PREFIX}{group}{'' if field is None else f'__{field}'}".upper()


def variables() -> dict[str, str | None]:
    """The environment and `.env`, with names in upper case; the environment is stronger."""
    return {name.upper(): value for name, value in {**dotenv(), **os.environ}.items()}


def settings_files() -> Sequence[Path]:
    """The files that settings come from, the weaker one first; a `.env` without one of our settings is left out."""
    file = Path(DOTENV)
    has_ours = any(name.upper().startswith(PREFIX) for name in dotenv())
    return [file.absolute() for file in (config_file(), file if has_ours else None) if file]


def log_files() -> None:
    """Log the settings files, because anyone who may write to the working folder could have put them there."""
    if files := settings_files():
        log.info("settings come from %s", " and ".join(map(str, files)))


def name_config_file(file: Path) -> None:
    """Read this TOML file, in this process and in those that it starts, whatever `ENRICHER_CONFIG` named before."""
    os.environ[CONFIG_VARIABLE] = str(file)


def config_file() -> Path | None:
    """The TOML file, if there is one. Raises SettingsError if the one that `ENRICHER_CONFIG` names is not there."""
    named = os.environ.get(CONFIG_VARIABLE)
    if named and not Path(named).is_file():
        message = f"{CONFIG_VARIABLE} names {named}, which is not a file"
        raise SettingsError(message)
    path = Path(named or DEFAULT_CONFIG_FILE)
    return path if path.is_file() else None


def tables(file: Path) -> dict[str, Any]:
    """The content of a TOML file. A byte order mark, which some editors write, is skipped; TOML does not allow it."""
    try:
        return tomllib.loads(file.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _unreadable(file, error) from None


def dotenv() -> Mapping[str, str | None]:
    """The variables in `.env`."""
    file = Path(DOTENV)
    try:
        return dotenv_values(file) if file.is_file() else {}
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from None


def _unreadable(file: Path, error: Exception) -> SettingsError:
    """An error without the content: a UnicodeDecodeError contains it, and it may be a secret."""
    reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", None) or error
    return SettingsError(f"{file}: {reason}")
