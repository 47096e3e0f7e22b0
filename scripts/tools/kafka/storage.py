"""The storage of a fresh node as Kafka's own tool formats it, in a folder beside the jars.

The tool runs once for each version, in 3 s; later nodes get what it has written, with ids of their own.
"""

from __future__ import annotations

import base64
import re
import shutil
import tempfile
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

META = "meta.properties"


@dataclass(frozen=True, slots=True)
class FormattedStorage:
    """A copy in the folder `kept`, which may not be there yet."""

    kept: Path

    def copy_to(self, log_folder: Path, cluster_id: str, node_id: int) -> bool:
        """Make `log_folder` the storage of a fresh node; returns whether there was something to copy."""
        if not self.kept.is_dir():
            return False
        shutil.copytree(self.kept, log_folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(META))
        text = (self.kept / META).read_text(encoding="utf-8")
        for name, value in (("cluster.id", cluster_id), ("node.id", str(node_id)), ("directory.id", new_id())):
            text = re.sub(rf"(?m)^{re.escape(name)}=.*$", f"{name}={value}", text)
        (log_folder / META).write_text(text, encoding="utf-8")  # last: a folder that has it is complete
        return True

    def keep(self, log_folder: Path) -> None:
        """Keep a copy of what the tool has just written, unless another process was quicker."""
        scratch = Path(tempfile.mkdtemp(prefix="formatted-", dir=self.kept.parent))
        try:
            shutil.copytree(log_folder, scratch, dirs_exist_ok=True)
            with suppress(OSError):
                scratch.rename(self.kept)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def new_id() -> str:
    """A UUID as Kafka writes it, 22 characters of base64, without dashes, since `-t` takes a leading one for an option."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
