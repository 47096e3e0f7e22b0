"""`enricher lag`: how far a group is behind, and how old its oldest unprocessed record is.

`reading` reads the topic; here are the options, the output and the exit code.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from typing import Annotated

import orjson
import typer
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Column, Table

from enricher.errors import SettingsError
from enricher.operate.lag.backlog import Backlog
from enricher.operate.lag.reading import BacklogReader
from enricher.worker.build.kafka_clients import kafka_config
from enricher.worker.commands.console import data_console, write_line
from enricher.worker.settings import load_settings

BEHIND = 9
"""The exit code if the group is further behind than allowed."""

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def lag(
    *,
    input_topic: Annotated[
        str | None, typer.Option("--input", help="Input topic. Default: all of the settings.")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", help="Consumer group. Default: from settings.")] = None,
    max_age_s: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="Exit with code 9 if a record has waited longer, or its age is unknown."
        ),
    ] = None,
    max_lag: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Exit with code 9 if the group is more than N offsets behind."),
    ] = None,
    watch_s: Annotated[
        float | None,
        typer.Option("--watch", min=0.1, max=86_400, metavar="SECONDS", help="Repeat at this interval, until Ctrl-C."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object; with --watch, one per line.")] = False,
) -> None:
    """Show how far the group is behind, and the age of the oldest unprocessed record. Only reads.

    The age is that of the record at the committed offset, by its own timestamp. The lag is counted in offsets, and the
    markers of transactions take some of them; where only markers are left, lag and age are 0. The command joins no group.

    Exit code: 0, or 9 if further behind than allowed, 2 for settings, 4 for the broker. It needs READ on the input topic
    and DESCRIBE on the group.
    """
    if watch_s and (max_age_s, max_lag) != (None, None):
        raise SettingsError("--watch never ends by itself, so it takes neither --max-age-s nor --max-lag")
    config = kafka_config(load_settings())
    config = replace(config.of_input(input_topic) if input_topic else config, group_id=group or config.group_id)
    with closing(BacklogReader(config)) as reader:
        if watch_s:
            _watch(reader, watch_s, as_json=as_json)
            return
        backlog = reader.look()
    exceeded = limits_exceeded(backlog, max_age_s, max_lag)
    if as_json:
        write_line(orjson.dumps(backlog.as_json() | {"exceeded": exceeded}, option=orjson.OPT_INDENT_2))
    else:
        console = data_console()
        console.print(_table(backlog))
        console.print(summary(backlog), soft_wrap=True)
        for text in exceeded:
            console.print(f"[bold red]too far behind[/]: {text}", soft_wrap=True)
    raise typer.Exit(BEHIND if exceeded else 0)


def limits_exceeded(backlog: Backlog, max_age_s: float | None, max_lag: int | None) -> list[str]:
    """A sentence for each limit that is exceeded; None is no limit. An unknown age exceeds any, so that alarms see it."""
    found = []
    if max_age_s is not None and backlog.age_s is None:
        found.append("a record waits whose age is unknown: it has no timestamp, or cannot be read")
    elif max_age_s is not None and backlog.age_s is not None and backlog.age_s > max_age_s:
        found.append(f"the oldest record has waited for {backlog.age_s:.1f} s, {max_age_s:g} s are allowed")
    if max_lag is not None and backlog.behind > max_lag:
        found.append(f"the group is {backlog.behind} behind, {max_lag} are allowed")
    return found


def summary(backlog: Backlog) -> str:
    """All partitions in one line, with markup."""
    who = escape(f"group {backlog.group} on {backlog.topic}")
    workers = f"{backlog.workers} worker{'' if backlog.workers == 1 else 's'}"
    if not backlog.waiting_partitions:
        return f"[green]nothing waits[/]: {who}, {workers}"
    of = f"{backlog.waiting_partitions} of {len(backlog.partitions)} partitions"
    return f"{backlog.behind:,} behind in {of}, the oldest record for {age_text(backlog.age_s)}: {who}, {workers}"


def age_text(age_s: float | None) -> str:
    """An age in its two largest units, e.g. `4.2 s`, `3 min 5 s`, `2 d 4 h`."""
    if age_s is None:
        return "unknown (no timestamp, or it cannot be read)"
    if age_s < 60:
        return f"{age_s:.1f} s"
    left_s, parts = int(age_s), []
    for unit_s, name in _UNITS:
        count, left_s = divmod(left_s, unit_s)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])


def _watch(
    reader: BacklogReader, every_s: float, *, as_json: bool, pause: Callable[[float], None] = time.sleep
) -> None:
    console = data_console()
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        while True:
            backlog = reader.look()
            if as_json:
                write_line(orjson.dumps(backlog.as_json()))
            elif console.is_terminal:
                live.update(Group(_table(backlog), summary(backlog)), refresh=True)
            else:
                console.print(summary(backlog), soft_wrap=True)
            pause(every_s)


def _table(backlog: Backlog) -> Table:
    right = [Column(name, justify="right") for name in ("partition", "committed", "end", "behind", "age")]
    several = len({each.topic for each in backlog.partitions}) > 1
    table = Table(*(["topic"] if several else []), *right, "")
    for each in backlog.partitions:
        committed = "-" if each.committed is None else f"{each.committed:,}"
        age = age_text(each.age_s) if each.waits else ""
        table.add_row(
            *([escape(each.topic)] if several else []),
            f"{each.number}",
            committed,
            f"{each.end:,}",
            f"{each.behind:,}",
            age,
            escape(each.remark),
        )
    return table
