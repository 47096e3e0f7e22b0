"""`scripts/chaos`: progress on standard error, the verdict on standard output, exit code 0 when all held."""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from tools.chaos.faults import KINDS
from tools.chaos.report import write_report
from tools.chaos.run import Plan, play
from tools.kafka.errors import ClusterError
from tools.kafka.versions import DEFAULT, VERSIONS, find

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def chaos(
    minutes: Annotated[float, typer.Option(help="How long faults come.")] = 5.0,
    articles: Annotated[int | None, typer.Option(help="Instead: until so many articles are published.")] = None,
    seed: Annotated[int, typer.Option(help="Repeats a run: the same faults in the same order.")] = 1,
    rate: Annotated[float, typer.Option(help="Articles published per second.")] = 110.0,
    kafka: Annotated[str, typer.Option(help=f"Version of the brokers: {', '.join(VERSIONS)}; or oldest.")] = DEFAULT,
    only: Annotated[list[str] | None, typer.Option(help="Faults with this in their name; may be repeated.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("chaos-report"),
    logs: Annotated[Path | None, typer.Option(help="Folder to keep the workers' logs in.")] = None,
) -> None:
    """Three workers, three Kafka nodes, a proxy between them, and one fault after another; then every record is checked."""
    logging.basicConfig(level=logging.ERROR)
    kinds = [kind for kind in KINDS if not only or any(text in kind.name for text in only)]
    if not kinds:
        raise typer.BadParameter(f"no fault has such a name; they are: {', '.join(kind.name for kind in KINDS)}")
    try:
        kafka = find(kafka)
    except ClusterError as error:
        raise typer.BadParameter(str(error)) from error
    with tempfile.TemporaryDirectory(prefix="enricher-chaos-") as temporary:
        folder = (logs or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        run = play(Plan(seed, rate, minutes, articles, kinds, kafka), folder, _say)
    write_report(run, out)
    print(run.verdict)
    print(f"report: {out / 'chaos.html'}")
    sys.exit(0 if run.good else 1)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    app(prog_name="scripts/chaos")
