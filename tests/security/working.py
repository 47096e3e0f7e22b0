"""Workers and other commands, each in its own process, on the secured broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kafka.harness import Sent, as_sent, assert_exactly_once, publish, read_all, short_articles
from security.rights import five_rights, give
from security.secured import Secured
from support.topics import Topics, make_topics

_TIMEOUT_S = 90
# A client that gets no answer is given up soon, and what a dead worker left open is settled soon.
_QUICK = {"ENRICHER_KAFKA__TRANSACTION_TIMEOUT_S": "5", "ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "2"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A command's exit code and its output on both streams."""

    code: int
    said: str

    @property
    def message(self) -> str:
        """Why it ended: our last line. The client's threads may log others after it."""
        ours = [text for line in self.said.splitlines() if (text := _last_line(line))]
        assert len(ours) == 1, self.said
        return ours[0]


def _last_line(line: str) -> str | None:
    """The reason in a line that tells an end, in either form; a worker whose log is piped has it in JSON."""
    message = json.loads(line)["message"] if line.startswith("{") else line
    return message if message.startswith(("enricher: ", "ending with code ")) else None


@dataclass(frozen=True, slots=True)
class Place:
    """The topics of one test, reached through a listener."""

    secured: Secured
    topics: Topics
    environment: Mapping[str, str]

    def with_properties(self, changes: Mapping[str, Any], *, without: Sequence[str] = ()) -> Place:
        """The same topics with other client properties."""
        properties = json.loads(self.environment["ENRICHER_KAFKA__PROPERTIES"]) | dict(changes)
        kept = {name: value for name, value in properties.items() if name not in without}
        return replace(self, environment={**self.environment, "ENRICHER_KAFKA__PROPERTIES": json.dumps(kept)})

    def run(self, *arguments: str, stdin: str = "") -> Outcome:
        """Run a command to its end."""
        done = subprocess.run(
            self._command(*arguments),
            env={**os.environ, **self.environment},
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        return Outcome(done.returncode, done.stdout)

    def work(self) -> Outcome:
        """Run a worker until it has caught up or fails."""
        return self.run("run", "--until-caught-up")

    def start_worker(self) -> subprocess.Popen[str]:
        """Run a worker until something ends it."""
        return subprocess.Popen(
            self._command("run"),
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def publish(self, first: int, count: int) -> dict[tuple[int, int], Sent]:
        """Publish articles with these numbers and one invalid input; returns their places."""
        articles = map(as_sent, short_articles(first + count)[first:])
        bad = Sent(b"bad-%d" % first, b"no JSON")
        return publish(self.secured.admin_address, self.topics.input, [*articles, bad])

    def outputs(self) -> list[Any]:
        """Everything that a committed reader sees of both outputs."""
        address = self.secured.admin_address
        return [*read_all(address, self.topics.output), *read_all(address, self.topics.dead_letters)]

    def check_exactly_once(self, places: Mapping[tuple[int, int], Sent]) -> None:
        """Every input has exactly one outcome."""
        assert_exactly_once(self.outputs(), places)

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "enricher", *arguments]


def place_at(secured: Secured, listener: str, *, rights: bool = True) -> Place:
    """Fresh topics, reached through `listener` as `USER`; with the five rights if asked for."""
    topics = make_topics(secured.admin_address)
    if rights:
        give(secured, five_rights(topics))
    environment = {
        **topics.environment,
        **_QUICK,
        "ENRICHER_KAFKA__BOOTSTRAP_SERVERS": secured.cluster.address_of(listener),
        "ENRICHER_KAFKA__PROPERTIES": json.dumps(secured.way_in(listener)),
    }
    return Place(secured, topics, environment)
