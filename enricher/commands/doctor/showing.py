"""Shows trials while they run: a short line for each on standard error, and the table of all on standard output."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from enricher.commands.console import data_console, remark_console
from enricher.commands.doctor.findings import Finding, as_line, as_table


def collect_and_show(findings: Iterable[Finding], *, table: bool) -> Sequence[Finding]:
    """Go through the findings; `table`: whether their table is wanted in the end."""
    found = []
    remarks = remark_console()
    for finding in findings:
        found.append(finding)
        remarks.print(as_line(finding))
    if table:
        data_console().print(as_table(found))
    return found


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM (a container that stops) does what Ctrl-C does: what is made is deleted before the end."""
    usual = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, usual)
