"""Finds and reads the files that settings come from: a TOML file and `.env`. `sources` decides what they mean."""

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
    "option `--config FILE`, before or after any command, takes precedence."
)
DOTENV = ".env"

log = logging.getLogger("enricher.worker.settings")


def variable_name(group: str, field: str | None = None) -> str:
    """The environment variable of a setting, or of a group that is one JSON object."""
    return f"{PREFIX}{group}{'' if field is None else f'__{field}'}".upper()


def variables() -> dict[str, str | None]:
    """The variables of the environment and of `.env`, with names in upper case; the environment takes precedence."""
    return {name.upper(): value for name, value in {**dotenv(), **os.environ}.items()}


def settings_files() -> Sequence[Path]:
    """The files that settings come from, the one that takes precedence last. A `.env` without our settings is left out."""
    file = Path(DOTENV)
    has_ours = any(name.upper().startswith(PREFIX) for name in dotenv())
    return [file.absolute() for file in (config_file(), file if has_ours else None) if file]


def log_settings_files() -> None:
    """Log where settings come from: anyone who may write to the working folder could have put the files there."""
    if files := settings_files():
        log.info("settings come from %s", " and ".join(map(str, files)))


def set_config_file(file: Path) -> None:
    """Read settings from this TOML file, in this process and those that it starts, instead of an earlier one."""
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


def dotenv() -> Mapping[str, str | None]:
    """The variables in `.env`."""
    file = Path(DOTENV)
    try:
        return dotenv_values(file) if file.is_file() else {}
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from None


def _unreadable(file: Path, error: Exception) -> SettingsError:
    """An error without the content that a UnicodeDecodeError has, which may be a secret."""
    reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", None) or error
    return SettingsError(f"{file}: {reason}")
