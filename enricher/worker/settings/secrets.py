"""Masks what may be a secret before a setting is shown: every value of a client's properties, and all but plain URLs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from enricher.worker.settings.group import FromFile

MASK = "***"

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}")
_PLAIN_URL = re.compile(r"\s*[A-Za-z][\w+.-]*://([\w.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?(/[^?#@:]*)?\s*")
"""Scheme, host, port and path. Any other URL is masked: what stands where a password or a query may be, may be one."""


def shown_text(text: str) -> str:
    """The text; masked if it has a URL that is more than an address, or is like `user:password@host`."""
    if "://" in text:
        return text if all(map(_PLAIN_URL.fullmatch, text.split(","))) else MASK
    before, at, _ = text.rpartition("@")
    return MASK if at and ":" in before else text


def shown_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties of a client, with the names of files that values are read from; a name that cannot be one is masked too."""
    return {
        name if _NAME.fullmatch(name) else MASK: value.model_dump(mode="json") if isinstance(value, FromFile) else MASK
        for name, value in properties.items()
    }
