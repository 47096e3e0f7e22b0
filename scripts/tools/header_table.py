"""Prints the headers of a JSON Schema in `schemas/` as a table: `python -m tools.header_table dead-letter-headers.v1`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"


def table(schema: str) -> str:
    """A row for each header, with the schema's description of it."""
    headers = json.loads((SCHEMAS / f"{schema}.schema.json").read_text("utf-8"))["properties"]
    rows = (f"| `{name}` | {each['description']} |\n" for name, each in headers.items())
    return "".join(("| header | meaning |\n", "| --- | --- |\n", *rows))


if __name__ == "__main__":
    sys.stdout.write(table(sys.argv[1]))
