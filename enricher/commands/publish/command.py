"""The command `publish`: options, order of things, progress. Reading is in `lines`, sending in `enricher.kafka`."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from enricher.commands.console import Ticker, remark_console
from enricher.commands.publish.lines import Inputs, check_lines, keyed
from enricher.commands.publish.rate import TokenBucket
from enricher.errors import BrokerError
from enricher.files import Line
from enricher.kafka.client import transactional_id
from enricher.kafka.publisher import Publisher
from enricher.settings import load_settings

_LINES_PER_TRANSACTION = 1_000
_DRAIN_STEP_S = 0.5


def publish(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="JSON lines, an article each; `-` is standard input.")
    ],
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Refuse everything if one line is no valid article, before sending.")
    ] = False,
    repeat: Annotated[
        int, typer.Option(min=1, help="Publish everything so often; ids get a suffix (`#2`, ...) from the second time.")
    ] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Publish so many articles at most.")] = None,
    rate: Annotated[
        float | None,
        typer.Option(min=0.01, help="Articles per second at most; what an outage held up is not caught up with."),
    ] = None,
    transactional: Annotated[
        bool, typer.Option("--transactional", help="In transactions of 1,000, as some producers of articles do.")
    ] = False,
) -> None:
    """Publish articles to the input topic, with the article's id as key.

    Lines that are no valid articles are published as they are (the worker makes dead letters of them), unless --check
    is given. Standard input is first copied to a temporary file with --check or --repeat.
    """
    from enricher.app import kafka_config  # noqa: PLC0415  it loads the inference room, which --help need not wait for

    settings = load_settings()
    inputs = Inputs(files, several_passes=check or repeat > 1)
    inputs.require()
    if check:
        count = check_lines(
            inputs,
            max_article_chars=settings.articles.max_article_chars,
            max_value_bytes=settings.articles.max_value_bytes,
        )
        remark_console().print(f"{count:,} valid articles")
    config = kafka_config(settings)
    own_id = transactional_id(config.group_id, config.instance, "publish", str(os.getpid())) if transactional else None
    publisher = Publisher(config, config.input_topic, transactional_id=own_id)
    publisher.open()
    sending = _Sending(publisher, rate_per_s=rate, transactional=transactional)
    try:
        with Ticker(remark_console()) as ticker:
            sending.send(_Amount(repeat, limit).lines(inputs), ticker)
    finally:
        remark_console().print(sending.summary())
    sending.raise_failures(config.input_topic)


@dataclass(frozen=True, slots=True)
class _Amount:
    repeat: int
    limit: int | None

    def lines(self, inputs: Inputs) -> Iterator[tuple[int, Line]]:
        """The round, from 1, and the line."""
        rounds = range(1, self.repeat + 1)
        every = ((round_number, line) for round_number in rounds for line in inputs.lines())
        return islice(every, self.limit)


class _Sending:
    """One run: sends at the wanted rate, commits where asked to, knows how far it is."""

    def __init__(self, publisher: Publisher, *, rate_per_s: float | None, transactional: bool) -> None:
        self._publisher = publisher
        self._bucket = None if rate_per_s is None else TokenBucket(rate_per_s)
        self._transactional = transactional
        self._began_s = time.monotonic()
        self._sent = 0
        self._committed = 0

    def send(self, lines: Iterator[tuple[int, Line]], ticker: Ticker) -> None:
        for round_number, line in lines:
            self._wait_for_turn(ticker)
            self._publisher.send(*keyed(line.value, round_number))
            self._sent += 1
            if self._transactional and self._sent % _LINES_PER_TRANSACTION == 0:
                self._commit()
            ticker.tick(self.summary)
        while self._publisher.drain(_DRAIN_STEP_S):
            ticker.tick(self.summary)
        if self._transactional:
            self._commit()

    def summary(self) -> str:
        elapsed_s = max(time.monotonic() - self._began_s, 1e-3)
        done, megabytes = self._publisher.delivered, self._publisher.delivered_bytes / 1e6
        failed = self._publisher.failures.total()
        text = f"{done:,} articles, {megabytes:,.1f} MB, {done / elapsed_s:,.0f}/s, {elapsed_s:.1f} s"
        if self._transactional and done > self._committed:
            text += f", {done - self._committed:,} of them not committed"
        return f"{text}, {failed:,} failed" if failed else text

    def raise_failures(self, topic: str) -> None:
        failures = self._publisher.failures
        if failures:
            reasons = "; ".join(f"{count:,} x {reason}" for reason, count in failures.most_common(3))
            raise BrokerError(f"{failures.total():,} of {self._sent:,} articles did not get into '{topic}': {reasons}")

    def _commit(self) -> None:
        self._publisher.commit()
        self._committed = self._publisher.delivered

    def _wait_for_turn(self, ticker: Ticker) -> None:
        bucket = self._bucket
        if bucket is None:
            return
        while (wait_s := self._held_up_s(bucket)) > 0:
            self._publisher.wait(min(wait_s, _DRAIN_STEP_S))
            ticker.tick(self.summary)
        bucket.take()

    def _held_up_s(self, bucket: TokenBucket) -> float:
        """Seconds until the next article may go: what the client keeps for a broker that is away is as good as sent."""
        unanswered = self._sent - self._publisher.delivered - self._publisher.failures.total()
        return _DRAIN_STEP_S if unanswered >= bucket.most_unanswered else bucket.wait_s()
