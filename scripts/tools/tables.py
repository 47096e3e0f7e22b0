"""Writes the tables of what the code knows into the pages:  scripts/tables.  `tests/test_docs.py` compares them.

A page says with two marks where a table begins and ends, and in the first one which command prints it. This program itself
prints the promises of a broker (`promises`), and the headers of a JSON Schema in `schemas/`, by its name.
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

from enricher.operate.doctor.promises import PROMISES

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


def _promise_table() -> str:
    """A row for each promise that `enricher doctor --transactions` tries."""
    rows = (f"| {each.name} | {each.claim} |\n" for each in PROMISES)
    return "".join(("| promise | in one sentence |\n", "| --- | --- |\n", *rows))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/tables", description=__doc__)
    parser.add_argument(
        "table", nargs="?", help="print this table, `promises` or the headers of a schema; write nothing"
    )
    if table := parser.parse_args().table:
        sys.stdout.write(_promise_table() if table == "promises" else _header_table(table))
        return
    for path in pages():
        page = path.read_text("utf-8")
        if (wanted := with_tables(page, _printed)) != page:
            sys.stdout.write(f"{path.relative_to(ROOT)}: written\n")
            path.write_text(wanted, "utf-8")


if __name__ == "__main__":
    main()
