"""The folder of servers that end with this process: one that is kept, or a temporary one."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tools.kafka.keeper import Keeper

LOGS = "SERVER_LOGS"
"""The environment variable that names a folder for the logs of servers whose own folder is removed at the end."""


class KeptFolder:
    """`data`: a folder that stays; without it a temporary one, whose name begins with `prefix`, removed at the end.

    `logs`: where its servers write their logs, once it is open.

    A keeper ends the servers in it when this process has ended, however it ends, unless `detach` is called.
    """

    def __init__(self, data: Path | None, prefix: str) -> None:
        self._data = data
        self._prefix = prefix
        self._keeper: Keeper | None = None
        self._cleanup = ExitStack()
        self.logs = data or Path()

    @property
    def temporary(self) -> bool:
        """Whether it is removed at the end."""
        return self._data is None

    def open(self) -> Path:
        """Create it, with a keeper that watches it before the first server starts."""
        folder = Path(tempfile.mkdtemp(prefix=self._prefix)) if self._data is None else self._data
        self.logs = folder = folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if self.temporary:
            self._cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
            self.logs = Path(os.environ.get(LOGS, folder.parent)) / folder.name
            self.logs.mkdir(parents=True, exist_ok=True)
        self._keeper = Keeper(folder, remove=self.temporary)
        self._cleanup.callback(self._keeper.release)
        return folder

    def close(self) -> None:
        """Let the keeper clean up and end; may be called twice."""
        self._cleanup.close()

    def detach(self) -> None:
        """Let the servers outlive this process; the caller must end them. Only with `data`."""
        assert self._keeper is not None, "detach before start"
        assert self._data is not None, "a temporary folder would never be removed"
        self._cleanup.pop_all()
        self._keeper.dismiss()
