"""Writes the tables of what the code knows into the pages:  scripts/tables.  `tests/test_docs.py` compares them.

A page says with two marks where a table begins and ends, and in the first one which command prints it. With the name of a
JSON Schema in `schemas/` this program prints one itself, of its headers.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = re.compile(r"^(<!-- printed by: python ([^\n]+) -->\n).*?^(<!-- end -->)$", re.MULTILINE | re.DOTALL)


def with_tables(page: str, printed: Callable[[str], str]) -> str:
    """The page with its tables as they should be. `printed`: what Python prints with these arguments."""
    return TABLE.sub(lambda found: f"{found[1]}\n{printed(found[2]).strip()}\n\n{found[3]}", page)


def pages() -> Iterator[Path]:
    """The pages with tables."""
    command = ("git", "ls-files", "*.md")
    listed = subprocess.check_output(command, cwd=ROOT, text=True).splitlines()
    return (path for path in map(ROOT.joinpath, listed) if TABLE.search(path.read_text("utf-8")))


def _printed(arguments: str) -> str:
    return subprocess.check_output([sys.executable, *shlex.split(arguments)], cwd=ROOT, text=True)


def _header_table(schema: str) -> str:
    """A row for each header, with the schema's description of it."""
    headers = json.loads((ROOT / "schemas" / f"{schema}.schema.json").read_text("utf-8"))["properties"]
    rows = (f"| `{name}` | {each['description']} |\n" for name, each in headers.items())
    return "".join(("| header | meaning |\n", "| --- | --- |\n", *rows))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/tables", description=__doc__)
    parser.add_argument("schema", nargs="?", help="print the headers of this schema, and write nothing")
    if schema := parser.parse_args().schema:
        sys.stdout.write(_header_table(schema))
        return
    for path in pages():
        page = path.read_text("utf-8")
        if (wanted := with_tables(page, _printed)) != page:
            sys.stdout.write(f"{path.relative_to(ROOT)}: written\n")
            path.write_text(wanted, "utf-8")


if __name__ == "__main__":
    main()
