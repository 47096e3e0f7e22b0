"""`scripts/chaos`: progress goes to standard error, the verdict to standard output; exit code 0 if every check passed."""

from __future__ import annotations

import logging
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from tools.chaos.faults import KINDS
from tools.chaos.report import write_report
from tools.chaos.run import Plan, play
from tools.kafka.versions import DEFAULT, VERSIONS, ClusterError, find

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def chaos(
    *,
    minutes: Annotated[float, typer.Option(help="For how many minutes to inject faults.")] = 5.0,
    articles: Annotated[int | None, typer.Option(help="Stop after so many articles instead of minutes.")] = None,
    seed: Annotated[int, typer.Option(help="Random seed: the same seed gives the same faults in the same order.")] = 1,
    rate: Annotated[float, typer.Option(help="Articles published per second.")] = 110.0,
    kafka: Annotated[str, typer.Option(help=f"Version of the brokers: {', '.join(VERSIONS)}; or oldest.")] = DEFAULT,
    only: Annotated[
        list[str] | None, typer.Option(help="Inject only faults whose name contains this; repeatable.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("chaos-report"),
    logs: Annotated[
        Path | None,
        typer.Option(
            help="Folder to keep the logs of workers and commands in. Default: OUT/logs, unless every check passes."
        ),
    ] = None,
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
    folder = (logs or out / "logs").resolve()
    if not logs:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    run = play(Plan(seed, rate, minutes, articles, kinds, kafka), folder, _say)
    if run.good and not logs:
        shutil.rmtree(folder)
    write_report(run, out)
    print(run.verdict)
    print(f"report: {out / 'chaos.md'}")
    sys.exit(0 if run.good else 1)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    app(prog_name="scripts/chaos")
