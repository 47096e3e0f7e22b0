"""Recognises Parquet files without pyarrow, which only the extra `parquet` installs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from enricher.distribution import install_command
from enricher.errors import SettingsError

PARQUET_MAGIC = b"PAR1"
PARQUET_SUFFIX = ".parquet"


def is_parquet(path: Path) -> bool:
    """Whether `path` is a Parquet file, by its first bytes. False for pipes and files that cannot be read."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as stream:
            return stream.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
    except OSError:
        return False


def require_parquet(path: Path) -> None:
    """Raise SettingsError if pyarrow is missing. `path` is the file that needs it."""
    if importlib.util.find_spec("pyarrow") is None:
        raise SettingsError(f"{path} is Parquet, which needs pyarrow: {install_command('parquet')}")
