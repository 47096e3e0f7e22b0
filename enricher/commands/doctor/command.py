"""The command `doctor`: settings first, then the broker, then the model and the machine; prints all, exits by the worst."""

import json
import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Annotated

import typer

from enricher.app import kafka_config
from enricher.commands.console import Ticker, data_console, remark_console
from enricher.commands.doctor.broker import Sizes, broker_findings
from enricher.commands.doctor.findings import Finding, Voice, as_json, as_table, exit_code
from enricher.commands.doctor.machine import machine_findings, model_findings
from enricher.commands.doctor.showing import collect_and_show, terminated_as_interrupted
from enricher.commands.doctor.transactions import tried_promises
from enricher.errors import SettingsError
from enricher.kafka.client import KafkaConfig
from enricher.settings import Settings, load_settings, settings_files

_say = Voice("settings")
_ADVICE = "'enricher settings' lists them all."
_TRANSACTIONS = (
    "Try the promises of the broker that exactly-once stands on, in topics that are created for it and deleted: under a "
    "minute. Needs rights that a worker does not need."
)


def doctor(
    *,
    transactions: Annotated[bool, typer.Option("--transactions", help=_TRANSACTIONS)] = False,
    as_json_: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Check whether a worker can run here: settings, broker, topics, rights, model, device. Changes nothing.

    No record is written, not even an aborted one: the broker is asked whether writing is allowed. A worker may be running
    meanwhile. Exit code: 0 if nothing failed, 2 for settings, 4 for the broker, 3 for the model.

    With --transactions only the broker is checked, in more depth: exit code 4 if a guarantee that exactly-once depends on
    does not hold or could not be tested. The topics and groups it creates are deleted, also after Ctrl-C.
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
    """The promises that exactly-once stands on. Returns the exit code."""
    facts: dict[str, object] = {}
    with terminated_as_interrupted(), closing(transaction_findings(facts)) as coming:
        findings = collect_and_show(coming, table=not for_machines)
    if for_machines:
        sys.stdout.write(json.dumps(facts | as_json(findings), indent=2) + "\n")
    return exit_code(findings)


def transaction_findings(facts: dict[str, object]) -> Generator[Finding]:
    """Settings, broker, and the promises in the order in which they end. Without valid settings there is only that line.

    `facts`: filled with what belongs beside the findings in a report.
    """
    try:
        settings = load_settings()
        yield _say.ok("settings", f"valid, from {_sources()}")
        yield from tried_promises(_config(settings), facts)
    except SettingsError as error:
        yield _say.fail("settings", str(error), _ADVICE)


def all_findings() -> Iterator[Finding]:
    """Every check, in order. Without valid settings there is only that one."""
    try:
        settings = load_settings()
        yield _say.ok("settings", f"valid, from {_sources()}")
        yield from _about_broker(settings)
    except SettingsError as error:
        yield _say.fail("settings", str(error), _ADVICE)
        return
    yield from model_findings(settings)
    yield from machine_findings(settings)


def _about_broker(settings: Settings) -> Iterator[Finding]:
    sizes = Sizes(settings.articles.max_record_bytes, settings.articles.max_dead_letter_bytes)
    yield from broker_findings(_config(settings), sizes)


def _config(settings: Settings) -> KafkaConfig:
    return kafka_config(settings)


def _sources() -> str:
    return ", ".join(["the environment", *map(str, settings_files())])
