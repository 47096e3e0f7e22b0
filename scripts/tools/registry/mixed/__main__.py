"""`python -m tools.registry.mixed`: progress goes to standard error, the summary to standard output; 0 if all is right."""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tools.kafka import Cluster
from tools.registry import Fault, FaultProxy, Registry
from tools.registry.mixed.layouts import FLAT, LAYOUTS, NESTED
from tools.registry.mixed.outage import ride_out
from tools.registry.mixed.outputs import OutputFormat
from tools.registry.mixed.stage import Stage
from tools.waiting import wait_until

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
_FORMATS: tuple[OutputFormat, ...] = ("json", "avro", "protobuf", "json-schema")
_AT_ONCE = 500


@app.command()
def mixed(
    articles: Annotated[int, typer.Option(help="How many, over all layouts.")] = 10_000,
    outage: Annotated[float, typer.Option(help="For how many seconds the registry is killed under load; 0: not.")] = 60,
    rate: Annotated[float, typer.Option(help="Articles per second during the outage.")] = 20.0,
) -> None:
    """Enrich articles of three layouts in fifteen forms each, with records in four formats, and check every record.

    The layouts have a topic and a worker each, because a worker has one field mapping; the forms are mixed in each topic.
    """
    good = True
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="enricher-mixed-")))
        cluster, registry = opened.enter_context(Cluster()), opened.enter_context(Registry())
        proxy = opened.enter_context(FaultProxy(registry.url))
        cluster.warm_up()
        stage = partial(Stage, bootstrap_servers=cluster.bootstrap_servers, registry_url=proxy.url)
        for layout, output_format in zip((*LAYOUTS, FLAT), _FORMATS, strict=True):
            with stage(layout, folder / output_format, output_format=output_format) as one:
                good &= _all_enriched(one, output_format, articles // len(_FORMATS))
        if outage:
            with stage(NESTED, folder / "outage") as one:
                good &= _outage(one, proxy, outage, rate)
    print("all is right" if good else "NOT all is right")
    sys.exit(0 if good else 1)


def _all_enriched(stage: Stage, output_format: str, count: int) -> bool:
    """Publish, enrich, check."""
    for done in range(0, count, _AT_ONCE):
        stage.publish(min(_AT_ONCE, count - done))
    _say(f"{stage.names.input}: {count} published; enriching them, records as {output_format} ...")
    began_s = time.monotonic()
    worker = stage.start("--until-caught-up")
    while worker.poll() is None:
        wait_until(lambda: worker.poll() is not None, 5)
        _say(f"{stage.names.input}: {count - stage.backlog()} of about {count} committed")
    seconds = time.monotonic() - began_s
    findings = stage.check()
    code, said = stage.verify()
    print(
        f"{stage.names.input}, records as {output_format}: worker ended with {worker.returncode} after {seconds:.0f} s; "
        f"{findings}; enricher verify: exit code {code}"
    )
    for what, examples in findings.examples.items():
        print(f"  {what}:", *examples, sep="\n    ")
    if code:
        print(said)
    return worker.returncode == 0 and not findings.counts and code == 0


def _outage(stage: Stage, proxy: FaultProxy, seconds: float, rate_per_s: float) -> bool:
    """Kill the registry under load."""
    stage.start()
    stage.publish(60)
    began = stage.wait_until_done(120)
    seen = ride_out(stage, proxy, Fault.DOWN, seconds, rate_per_s, _say)
    findings = stage.check()
    code, said = stage.verify()
    print(
        f"registry away for {seconds:.0f} s: age of the oldest record grew to {seen.ages_s[-1][1]:.0f} s, "
        f"{seen.waiting} inputs waited, {seen.dead_letters} dead letters; all committed "
        f"{'NEVER' if seen.recovered_s is None else f'{seen.recovered_s:.1f} s'} after its return; {findings}; "
        f"enricher verify: exit code {code}"
    )
    for what, examples in findings.examples.items():
        print(f"  {what}:", *examples, sep="\n    ")
    if code:
        print(said)
    settled = seen.recovered_s is not None and seen.grew and seen.waiting > 0 and not seen.dead_letters
    return began and settled and not findings.counts and code == 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    app(prog_name="python -m tools.registry.mixed")
