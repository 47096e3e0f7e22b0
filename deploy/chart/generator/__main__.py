"""Writes the generated files of the chart, or reports which are stale."""

from __future__ import annotations

import argparse
import sys

from deploy.chart.generator.layout import ROOT
from deploy.chart.generator.making import made, stale


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/chart", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is stale")
    arguments = parser.parse_args()
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
