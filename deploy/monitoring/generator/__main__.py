"""Writes the dashboard, or checks that the file is up to date."""

from __future__ import annotations

import argparse
import signal
import sys

from deploy.monitoring.generator.files import DASHBOARD, ROOT
from deploy.monitoring.generator.grafana import as_text, dashboard
from deploy.monitoring.generator.layout import ROWS


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/dashboard", description=__doc__)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the file is out of date")
    choice.add_argument(
        "--seen",
        action="store_true",
        help="start Kafka, a worker under load and Prometheus (which must be installed), run every query of the dashboard "
        "and the rules, and print each with its answer, as a Markdown page",
    )
    arguments = parser.parse_args()
    text = as_text(dashboard(ROWS))
    if arguments.seen:
        _see()
    elif arguments.check:
        sys.exit(_out_of_date(text))
    else:
        DASHBOARD.write_text(text, "utf-8")


def _out_of_date(text: str) -> int:
    if DASHBOARD.is_file() and DASHBOARD.read_text("utf-8") == text:
        return 0
    sys.stderr.write(f"{DASHBOARD.relative_to(ROOT)} is out of date: run scripts/dashboard\n")
    return 1


def _see() -> None:
    # Imported here, because the other options need neither Kafka nor Prometheus.
    from deploy.monitoring.generator.scene import under_load  # noqa: PLC0415
    from deploy.monitoring.generator.seen import answers, page  # noqa: PLC0415

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that Kafka, worker and Prometheus are stopped
    with under_load() as prometheus:
        sys.stdout.write(page(answers(prometheus), prometheus.version()))


if __name__ == "__main__":
    main()
