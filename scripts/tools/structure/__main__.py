"""The command line of `scripts/structure`."""

from __future__ import annotations

import argparse

from tools.structure.ceilings import lower, tokens_by_part
from tools.structure.report import accept, offenders, page


def main() -> None:
    parser = argparse.ArgumentParser(
        "scripts/structure", description="Sizes of the code, and smells that may only become fewer."
    )
    parser.add_argument("--places", action="store_true", help="name every place")
    parser.add_argument(
        "--accept", action="store_true", help="write today's figures, which tests/test_structure.py compares"
    )
    arguments = parser.parse_args()
    found = offenders()
    if arguments.accept:
        accept(found)
        lower(tokens_by_part())
    print(page(found, with_places=arguments.places))


if __name__ == "__main__":
    main()
