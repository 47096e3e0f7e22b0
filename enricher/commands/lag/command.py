"""The command `lag`: options and settings, looks, the exit code. The looking is `enricher.scaling.reading`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from typing import Annotated

import orjson
import typer
from rich.console import Console, Group
from rich.live import Live

from enricher.commands.console import data_console, write_line
from enricher.commands.lag import show
from enricher.commands.lag.limits import Limits
from enricher.errors import SettingsError
from enricher.scaling.backlog import Backlog
from enricher.scaling.reading import BacklogReader
from enricher.settings import load_settings

BEHIND = 9
"""The exit code where the group is further behind than asked."""


def lag(
    *,
    input_topic: Annotated[str | None, typer.Option("--input", help="Input topic. Default: the settings'.")] = None,
    group: Annotated[str | None, typer.Option("--group", help="Consumer group. Default: the settings'.")] = None,
    max_age_s: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="Exit with code 9 if a record waits for longer, or nobody knows."),
    ] = None,
    max_lag: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Exit with code 9 if the group is further behind.")
    ] = None,
    watch_s: Annotated[
        float | None,
        typer.Option("--watch", min=0.1, max=86_400, metavar="SECONDS", help="Look again and again; Ctrl-C ends it."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="For machines: an object, with --watch one per line.")
    ] = False,
) -> None:
    """How far is the group behind, and how old is the oldest unprocessed record? Reads, joins nothing, changes nothing.

    The age is that of the record at the committed offset, by its own timestamp. What is behind is counted in offsets, of
    which markers of transactions take some; where only such are left, nothing is behind and the age is 0.

    Exit code: 0, or 9 if further behind than asked, 2 for settings, 4 for the broker. It needs READ on the input topic and
    DESCRIBE on the group.
    """
    from enricher.app import kafka_config  # noqa: PLC0415  it loads the inference room, which --help need not wait for

    limits = Limits(max_age_s, max_lag)
    if watch_s and limits.any:
        raise SettingsError("--watch goes on for ever: it has no exit code for --max-age-s and --max-lag")
    config = kafka_config(load_settings())
    config = replace(config, input_topic=input_topic or config.input_topic, group_id=group or config.group_id)
    with closing(BacklogReader(config)) as reader:
        if watch_s:
            _watch(reader, watch_s, as_json=as_json)
            return
        backlog = reader.look()
    exceeded = limits.exceeded(backlog)
    if as_json:
        write_line(orjson.dumps(backlog.as_json() | {"exceeded": exceeded}, option=orjson.OPT_INDENT_2))
    else:
        _print(backlog, exceeded, data_console())
    raise typer.Exit(BEHIND if exceeded else 0)


def _print(backlog: Backlog, exceeded: list[str], console: Console) -> None:
    console.print(show.table(backlog))
    console.print(show.summary(backlog), soft_wrap=True)
    for text in exceeded:
        console.print(f"[bold red]too far behind[/]: {text}", soft_wrap=True)


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
                live.update(Group(show.table(backlog), show.summary(backlog)), refresh=True)
            else:
                console.print(show.summary(backlog), soft_wrap=True)
            pause(every_s)
