"""A command writes nothing to a user's home but the model cache; no library sends or stores telemetry."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.patience import PATIENCE_S
from support.topics import QUICK_TO_START


def test_a_command_writes_its_cache_and_nothing_else(tmp_path: Path) -> None:
    """ONNX Runtime on Linux would store a device id and events, and send them to Microsoft."""
    home = tmp_path / "home"
    home.mkdir()
    variables = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    done = subprocess.run(
        [sys.executable, "-m", "enricher", "enrich", "-"],
        input=b'{"id": "1", "body": "Angela Merkel met Emmanuel Macron in Paris."}\n',
        env={
            **variables,
            **QUICK_TO_START,
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / "cache"),
            "TMPDIR": str(home),
        },
        stdout=subprocess.PIPE,
        timeout=PATIENCE_S,
        check=True,
    )
    assert b"Emmanuel Macron" in done.stdout
    assert {"cache/enricher"} == {
        "/".join(path.relative_to(home).parts[:2]) for path in home.rglob("*") if path.is_file()
    }
