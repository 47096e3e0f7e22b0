"""A helper process's side of `child`: it tells what it has to say in lines of JSON on its standard output."""

from __future__ import annotations

import sys

import orjson


def tell(message: object) -> None:
    """Send one message: JSON, or a dataclass of it."""
    sys.stdout.buffer.write(orjson.dumps(message) + b"\n")
    sys.stdout.buffer.flush()
