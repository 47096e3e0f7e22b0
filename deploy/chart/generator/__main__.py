"""Writes the generated files of the chart, reports which are stale, or prints its values as a table in Markdown."""

from __future__ import annotations

import argparse
import sys

from deploy.chart.generator.comments import described
from deploy.chart.generator.layout import ROOT, VALUES
from deploy.chart.generator.making import made, stale
from deploy.chart.generator.values import table


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/chart", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is stale")
    parser.add_argument(
        "--table", action="store_true", help="print the values as a table in Markdown, and write nothing"
    )
    arguments = parser.parse_args()
    if arguments.table:
        sys.stdout.write(table(described(VALUES.read_text("utf-8"))))
        return 0
    wanted, old = made(), stale()
    for path in old:
        sys.stdout.write(f"{path.relative_to(ROOT)}: {'stale' if arguments.check else 'written'}\n")
        if not arguments.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path], "utf-8")
    if not old:
        sys.stdout.write("nothing to do\n")
    return int(arguments.check and bool(old))


if __name__ == "__main__":
    sys.exit(main())
