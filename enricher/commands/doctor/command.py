"""The command `doctor`: checks settings, broker, model and machine in this order, and prints all findings."""

import json
import signal
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Annotated

import typer

from enricher.app.kafka import kafka_config
from enricher.commands.console import Ticker, data_console, remark_console
from enricher.commands.doctor.broker import Sizes, broker_findings
from enricher.commands.doctor.findings import Finding, Reporter, as_json, as_line, as_table, exit_code
from enricher.commands.doctor.machine import machine_findings, model_findings
from enricher.commands.doctor.transactions import tried_promises
from enricher.errors import SettingsError
from enricher.settings import load_settings, settings_files

_report = Reporter("settings")
_ADVICE = "'enricher settings' lists them all."
_TRANSACTIONS = (
    "Try the broker's promises that exactly-once depends on, in topics that are created for this and deleted; under a "
    "minute. Needs rights that a worker does not need."
)


def doctor(
    *,
    transactions: Annotated[bool, typer.Option("--transactions", help=_TRANSACTIONS)] = False,
    as_json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check whether a worker can run here: settings, broker, topics, rights, model, device. Changes nothing.

    No record is written, not even an aborted one: the broker is asked whether writing is allowed. A worker may be running
    meanwhile. Exit code: 0 if nothing failed, 2 for settings, 4 for the broker, 3 for the model.

    With --transactions only the broker is checked, in more depth: exit code 4 if a promise that exactly-once depends on
    does not hold or could not be tried. The topics and groups it creates are deleted, also after Ctrl-C.
    """
    if transactions:
        raise typer.Exit(_try_transactions(for_machines=as_json_))
    findings = []
    with Ticker(remark_console()) as ticker:
        for finding in all_findings():
            findings.append(finding)
            ticker.tick(lambda: f"{len(findings)} checks done")
    if as_json_:
        sys.stdout.write(json.dumps(as_json(findings), indent=2) + "\n")
    else:
        data_console().print(as_table(findings))
    raise typer.Exit(exit_code(findings))


def _try_transactions(*, for_machines: bool) -> int:
    """Try the promises that exactly-once depends on. Returns the exit code."""
    facts: dict[str, object] = {}
    with _sigterm_as_ctrl_c(), closing(transaction_findings(facts)) as coming:
        findings = _show_as_they_arrive(coming, table=not for_machines)
    if for_machines:
        sys.stdout.write(json.dumps(facts | as_json(findings), indent=2) + "\n")
    return exit_code(findings)


def _show_as_they_arrive(findings: Iterable[Finding], *, table: bool) -> Sequence[Finding]:
    """Print and return the findings as they arrive; with `table`, print all of them again at the end."""
    found = []
    remarks = remark_console()
    for finding in findings:
        found.append(finding)
        remarks.print(as_line(finding))
    if table:
        data_console().print(as_table(found))
    return found


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does: created topics and groups are deleted before the end."""
    usual = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, usual)


def transaction_findings(facts: dict[str, object]) -> Generator[Finding]:
    """Settings, broker, then the promises in the order in which their trials end; only settings if these are invalid.

    Adds versions to `facts`, for the report.
    """
    try:
        settings = load_settings()
        yield _report.ok("settings", f"valid, from {_sources()}")
        yield from tried_promises(kafka_config(settings), facts)
    except SettingsError as error:
        yield _report.fail("settings", str(error), _ADVICE)


def all_findings() -> Iterator[Finding]:
    """Every check, in order; only settings if these are invalid."""
    try:
        settings = load_settings()
        yield _report.ok("settings", f"valid, from {_sources()}")
        sizes = Sizes(settings.articles.max_record_bytes, settings.articles.max_dead_letter_bytes)
        yield from broker_findings(kafka_config(settings), sizes)
    except SettingsError as error:
        yield _report.fail("settings", str(error), _ADVICE)
        return
    yield from model_findings(settings)
    yield from machine_findings(settings)


def _sources() -> str:
    return ", ".join(["the environment", *map(str, settings_files())])
