"""`scripts/chaos`: progress goes to standard error, the verdict to standard output; exit code 0 if every check passed."""

from __future__ import annotations

import logging
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from tools.chaos.faults import KINDS
from tools.chaos.run import Plan, play
from tools.kafka.versions import DEFAULT, VERSIONS, ClusterError, find

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def chaos(
    *,
    minutes: Annotated[float, typer.Option(help="For how many minutes to inject faults.")] = 5.0,
    seed: Annotated[int, typer.Option(help="Random seed: the same seed gives the same faults in the same order.")] = 1,
    rate: Annotated[float, typer.Option(help="Articles published per second.")] = 110.0,
    kafka: Annotated[str, typer.Option(help=f"Version of the brokers: {', '.join(VERSIONS)}; or oldest.")] = DEFAULT,
    only: Annotated[
        list[str] | None, typer.Option(help="Inject only faults whose name contains this; repeatable.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the logs, which stay if a check fails.")] = Path("chaos-logs"),
) -> None:
    """Inject random faults into three workers and three brokers behind a proxy, then check every record."""
    logging.basicConfig(level=logging.ERROR)
    kinds = [kind for kind in KINDS if not only or any(text in kind.name for text in only)]
    if not kinds:
        raise typer.BadParameter(f"no fault's name matches; known: {', '.join(kind.name for kind in KINDS)}")
    try:
        kafka = find(kafka)
    except ClusterError as error:
        raise typer.BadParameter(str(error)) from error
    logs = out.resolve()
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    run = play(Plan(seed, rate, minutes, kinds, kafka), logs, _say)
    if run.good:
        shutil.rmtree(logs)
    print(run.report)
    sys.exit(0 if run.good else 1)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    app(prog_name="scripts/chaos")
