"""The status page: one document with its style and its script inside, made once from the files beside this one.

Its policy lets it run exactly these, and ask nobody but the server that it came from.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Page:
    """A document, and the headers that go with it."""

    body: bytes
    headers: Mapping[str, str]


def made_of(markup: str, scripts: Sequence[str]) -> Page:
    """A page of files of this folder: what stands in `frame.html` in the place of `@body`, and its scripts in order."""
    style = _read("status.css")
    script = "'use strict';\n" + "".join(map(_read, scripts))
    document = _read("frame.html").replace("@body\n", _read(markup))
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


PROCESS_PAGE = made_of("status.html", ["common.js", "charts.js", "status.js"])
"""Of one worker."""
PARENT_PAGE = made_of("processes.html", ["common.js", "charts.js", "processes.js"])
"""Of the parent of several."""
