"""Rights, granted and revoked at the secured broker, and workers and other commands, each in its own process there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from kafka.harness import Sent, as_sent, assert_exactly_once, publish, short_articles
from security.secured import USER, Secured
from support.forked import Forked
from support.logs import new_log
from support.patience import PATIENCE_S, wait_until
from support.reading import read_all
from support.stub_worker import STUB_WORKER
from support.topics import Topics, make_topics


@dataclass(frozen=True, slots=True)
class Right:
    """One right: an operation on a resource. `prefixed`: on all resources whose names begin with `name`."""

    label: str
    operation: str
    kind: ResourceType
    resource: str
    prefixed: bool = False

    def binding(self) -> AclBinding:
        """The ACL that grants it to `USER`."""
        pattern = ResourcePatternType.PREFIXED if self.prefixed else ResourcePatternType.LITERAL
        operation = AclOperation[self.operation]
        return AclBinding(self.kind, self.resource, pattern, f"User:{USER}", "*", operation, AclPermissionType.ALLOW)

    def filter(self) -> AclBindingFilter:
        """The filter that matches this ACL."""
        rule = self.binding()
        return AclBindingFilter(
            rule.restype, rule.name, rule.resource_pattern_type, rule.principal, rule.host, rule.operation,
            rule.permission_type,
        )  # fmt: skip


def five_rights(topics: Topics) -> Sequence[Right]:
    """What `deploy/rights.md` says that a worker needs, and nothing else."""
    return [
        Right("input", "READ", ResourceType.TOPIC, topics.input),
        Right("group", "READ", ResourceType.GROUP, topics.group),
        Right("output", "WRITE", ResourceType.TOPIC, topics.output),
        Right("dead letters", "WRITE", ResourceType.TOPIC, topics.dead_letters),
        Right("transactional id", "WRITE", ResourceType.TRANSACTIONAL_ID, f"{topics.group}/", prefixed=True),
    ]


def give(secured: Secured, rights: Iterable[Right]) -> None:
    """Grant rights; returns once the broker applies them."""
    wanted = list(rights)
    for future in secured.admin.create_acls([right.binding() for right in wanted]).values():
        future.result(PATIENCE_S)
    for right in wanted:
        _wait_for(secured, right, rules=1)


def take(secured: Secured, right: Right) -> None:
    """Revoke a right; returns once the broker applies it."""
    for future in secured.admin.delete_acls([right.filter()]).values():
        assert len(future.result(PATIENCE_S)) == 1, "it was there"
    _wait_for(secured, right, rules=0)


def _wait_for(secured: Secured, right: Right, *, rules: int) -> None:
    """Wait until the broker applies so many ACLs."""

    def applies() -> bool:
        return len(secured.admin.describe_acls(right.filter()).result(PATIENCE_S)) == rules

    wait_until(applies, PATIENCE_S, f"{rules} rules for {right}", 0.01)


_TIMEOUT_S = 180
# A client that gets no answer is given up soon, and what a dead worker left behind ends soon.
_QUICK = {
    "ENRICHER_KAFKA__SESSION_TIMEOUT_S": "6",
    "ENRICHER_KAFKA__TRANSACTION_TIMEOUT_S": "5",
    "ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "2",
}


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
class Command:
    """A command that was started. `log` has its output on both streams."""

    process: Forked
    log: Path

    def outcome(self) -> Outcome:
        """Wait for its end."""
        code = self.process.wait(_TIMEOUT_S)
        return Outcome(code, self.log.read_text("utf-8"))


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

    def run(self, *arguments: str) -> Outcome:
        """Run a command to its end."""
        with self.started(*arguments) as command:
            return command.outcome()

    def work(self) -> Outcome:
        """Run a worker until it has caught up or fails."""
        return self.run("run", "--until-caught-up")

    @contextmanager
    def started(self, *arguments: str) -> Iterator[Command]:
        """A command, killed at the end if it still runs."""
        log = new_log("command")
        environment = {**os.environ, **self.environment}
        with Forked([STUB_WORKER, *arguments], environment, log, stdout=log) as process:
            yield Command(process, log)

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
