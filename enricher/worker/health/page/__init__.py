"""The status page: one document with inline style and script, assembled at import from the files in this folder.

Its content security policy allows exactly this style and this script, and requests to its own server only.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Page:
    """A document and its HTTP headers."""

    body: bytes
    headers: Mapping[str, str]


def _assemble() -> Page:
    style = _read("status.css")
    script = "'use strict';\n" + "".join(map(_read, ["common.js", "charts.js", "status.js"]))
    document = _read("frame.html").replace("@body\n", _read("status.html"))
    body = document.replace("@style", style).replace("@script", script)
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Page(body.encode(), {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"})


def _read(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


PAGE = _assemble()
"""The status page of a worker."""
