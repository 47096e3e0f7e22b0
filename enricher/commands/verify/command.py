"""The command `verify`: options and settings, progress, the answer, the exit code. The verification is `enricher.verify`."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import orjson
import typer

from enricher.commands.console import Ticker, data_console, remark_console, write_line
from enricher.commands.verify.show import progress_text, show
from enricher.kafka.client import KafkaConfig
from enricher.settings import Settings, load_settings
from enricher.verify import Recompute, Report, VerifyOptions
from enricher.verify import verify as run_verification

BROKEN = 8
"""The exit code where a check failed."""

_SWEEP_S = 10.0  # how often a broker looks for transactions that are over time, by default


def verify(
    *,
    input_topic: Annotated[str | None, typer.Option("--input", help="Input topic. Default: the settings'.")] = None,
    output_topic: Annotated[str | None, typer.Option("--output", help="Output topic. Default: the settings'.")] = None,
    dead_letters: Annotated[
        str | None, typer.Option("--dead-letters", help="Dead-letter topic. Default: the settings'.")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", help="Consumer group. Default: the settings'.")] = None,
    wait_s: Annotated[
        float | None,
        typer.Option(
            "--wait", min=0, max=604_800, metavar="SECONDS", help="Let the group catch up first, for at most so long."
        ),
    ] = None,
    watch_s: Annotated[
        float,
        typer.Option(
            "--watch", min=0, max=604_800, metavar="SECONDS", help="Watch committed offsets first: they never go back."
        ),
    ] = 0.0,
    recompute: Annotated[
        int,
        typer.Option("--recompute", min=0, metavar="N", help="Enrich the inputs of N records again, and compare."),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Is every committed input exactly once in the output or the dead letters? Reads the topics, changes nothing.

    It judges what the group has committed, so workers may be running. Inputs that retention or compaction has removed
    are gaps; a check that the topics can no longer answer is unknown, not failed. Where the input topic was deleted and
    created again, outputs that name the id of the earlier topic are counted and not judged. Records are named by topic,
    partition and offset, their text is never shown.

    Exit code: 0 if no check failed, 8 if one did, 2 for settings, 3 for the model (`--recompute` only), 4 for the broker.
    It needs READ on the three topics and on the group. It holds 3 bytes per input in memory: 300 MB for 100 million.
    """
    from enricher.app import kafka_config  # noqa: PLC0415  it loads the inference room, which --help need not wait for

    settings = load_settings()
    config = kafka_config(settings)
    config = replace(
        config,
        input_topic=input_topic or config.input_topic,
        output_topic=output_topic or config.output_topic,
        dead_letter_topic=dead_letters or config.dead_letter_topic,
        group_id=group or config.group_id,
    )
    options = VerifyOptions(
        settle_s=config.transaction_timeout_s + _SWEEP_S,
        wait_s=wait_s,
        watch_s=watch_s,
        recompute=_recompute(settings) if recompute else None,
        sample=recompute,
    )
    report = _verified(config, options)
    if as_json:
        write_line(orjson.dumps(report.as_json(), option=orjson.OPT_INDENT_2))
    else:
        show(report, config, data_console())
    raise typer.Exit(0 if report.holds else BROKEN)


def _recompute(settings: Settings) -> Recompute:
    from enricher.commands.verify.recompute import recompute_with  # noqa: PLC0415  it loads the inference room

    return recompute_with(settings)


def _verified(config: KafkaConfig, options: VerifyOptions, clock: Callable[[], float] = time.monotonic) -> Report:
    start_s = clock()
    with Ticker(remark_console()) as ticker:

        def progress(doing: str, done: int, total: int) -> None:
            ticker.tick(lambda: progress_text(doing, done, total, clock() - start_s))

        return run_verification(config, options, progress)
