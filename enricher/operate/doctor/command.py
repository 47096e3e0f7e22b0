"""The command `doctor`: checks settings, broker, registry and model in this order, and prints all findings."""

import json
import signal
import sys
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Annotated

import typer
from rich.markup import escape

from enricher.errors import SettingsError
from enricher.operate.doctor.articles import article_findings
from enricher.operate.doctor.broker import broker_findings, registry_findings
from enricher.operate.doctor.findings import Finding, Reporter, as_json, as_line, as_table, exit_code
from enricher.operate.doctor.models import model_findings
from enricher.operate.doctor.transactions import tried_promises
from enricher.worker.commands.console import Ticker, data_console, remark_console
from enricher.worker.runtime.watchdog import START_TIMEOUT_S, Guard, ProcessTimer, Watchdog
from enricher.worker.settings import Settings, load_settings, settings_file
from enricher.worker.wiring.formats import check_formats, transform_cards
from enricher.worker.wiring.kafka_clients import kafka_config

_report = Reporter("settings")
_PARTS = ("settings", "broker", "registry", "model")
"""The settings are always checked."""
_TRANSACTIONS = (
    "Try the broker's promises that exactly-once depends on, in topics that are created for this and deleted; under a "
    "minute. Needs rights that a worker does not need."
)


def doctor(
    context: typer.Context,
    *,
    only: Annotated[
        str,
        typer.Option(
            "--only", metavar="PARTS", help=f"Check only these, e.g. settings,broker; of {', '.join(_PARTS)}."
        ),
    ] = "",
    transactions: Annotated[bool, typer.Option("--transactions", help=_TRANSACTIONS)] = False,
    as_json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check whether a worker can run here: settings, broker, topics, rights, schema registry, model, device.

    Changes nothing. What fails is printed at once, the broker's part first; the model is loaded last.

    No record is written, not even an aborted one: the broker is asked whether writing is allowed. A worker may be running
    meanwhile. Exit code: 0 if nothing failed, 2 for settings, 4 for the broker or the registry, 3 for the model.

    With --transactions only the broker is checked, in more depth: exit code 4 if a promise that exactly-once depends on
    does not hold or could not be tried. The topics and groups it creates are deleted, also after Ctrl-C.
    """
    parts = _parts_of(only)
    found: list[Finding] = []
    remarks = remark_console()
    if transactions:
        with (
            _sigterm_as_ctrl_c(),
            closing(_findings(lambda settings: tried_promises(kafka_config(settings)))) as coming,
        ):
            for finding in coming:
                found.append(finding)
                remarks.print(as_line(finding))
    else:
        with Ticker(remarks) as ticker, Watchdog(timer=context.find_object(ProcessTimer)) as watchdog:
            for finding in _findings(partial(_start, parts=parts, guard=watchdog.guard)):
                found.append(finding)
                if finding.verdict == "FAIL":
                    remarks.print(f"{as_line(finding)}: {escape(finding.seen)}")
                ticker.tick(lambda: f"{len(found)} checks done")
    if as_json_:
        sys.stdout.write(json.dumps(as_json(found), indent=2) + "\n")
    else:
        data_console().print(as_table(found))
    raise typer.Exit(exit_code(found))


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does: created topics and groups are deleted before the end."""
    usual = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, usual)


def _findings(checks: Callable[[Settings], Iterator[Finding]]) -> Generator[Finding]:
    """The settings, then what `checks` finds with them; only the settings if these are invalid."""
    try:
        settings = load_settings()
        kafka_config(settings)  # the clients' properties and the files that they name are settings too
        check_formats(settings)
        file = settings_file()
        sources = f"the environment, {file}" if file else "the environment"
        yield _report.ok("settings", f"valid, from {sources}")
        if cards := transform_cards(settings):
            yield _report.ok("transforms", ", ".join(map(str, cards)))
        yield from checks(settings)
    except SettingsError as error:
        yield _report.fail("settings", str(error), "'enricher settings' lists them all.")


def _parts_of(only: str) -> Collection[str]:
    """The parts that `--only` names, or all. Raises SettingsError."""
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in _PARTS:
            raise SettingsError(f"--only: there is no part '{name}'; the parts are {', '.join(_PARTS)}")
    return names or _PARTS


def _start(settings: Settings, parts: Collection[str], guard: Guard) -> Iterator[Finding]:
    """Every other check of these parts, in the order of a worker's start."""
    readable = "broker" in parts
    if "broker" in parts:
        for finding in broker_findings(kafka_config(settings)):
            readable = readable and finding.verdict != "FAIL"
            yield finding
    if "registry" in parts:
        yield from registry_findings(settings)
    if readable:
        yield from article_findings(settings, guard)
    if "model" in parts:
        with guard("starting", START_TIMEOUT_S):
            yield from model_findings(settings)
