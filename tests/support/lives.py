"""What a worker behind the proxy works on, and processes of one that are not started again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from kafka.harness import as_sent, publish, short_articles

from enricher.operate.verify.verification import verify
from enricher.worker.commands.running import repeating
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.settings import Settings
from enricher.worker.wiring.kafka_clients import kafka_config
from support.crews import forked
from support.patience import PATIENCE_S
from support.reading import committed_and_ends
from tools.chaos.crew import environment_of
from tools.chaos.proxy import Proxy
from tools.chaos.rules import Answered, Api, Hold, Match
from tools.chaos.scene import settings_of
from tools.topics import Topics as Names
from tools.waiting import wait_until

NAME = "worker-0"


class Life:
    """One process of a worker, without restarts."""

    def __init__(self, settings: Mapping[str, Any], log: Path) -> None:
        self.log = log
        log.touch()
        self._process = forked(("tools.chaos.worker",), environment_of(settings), log)

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def says(self, words: str) -> int:
        """How often its log contains this."""
        return self.log.read_text().count(words)

    def close(self) -> None:
        """End the process if it still runs."""
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_S)
        finally:
            self._process.kill()


class Job:
    """What is published for the group of one worker, whose clients may connect through the proxy, and what it does."""

    def __init__(self, proxy: Proxy, servers: str, names: Names, instance: str = NAME) -> None:
        self.proxy, self.servers, self.names, self.instance = proxy, servers, names, instance
        self.published = 0

    @property
    def config(self) -> KafkaConfig:
        """The configuration of its clients, past the proxy."""
        return kafka_config(Settings(**settings_of(self.servers, self.names, self.instance)))

    def publish(self, count: int) -> None:
        """Publish so many articles."""
        publish(self.servers, self.names.input, map(as_sent, short_articles(count, seed=self.published)))
        self.published += count

    def committed(self) -> int:
        """How many articles the group has committed; -1 while a fresh topic has no leader."""
        try:
            offsets = committed_and_ends(self.servers, self.names.group, self.names.input)
        except KafkaException:
            return -1
        return sum(max(0, committed) for committed, _ in offsets.values())

    def wait_until_committed(self) -> None:
        """Wait until the group has committed everything published."""
        assert wait_until(lambda: self.committed() == self.published, PATIENCE_S), self.logs()

    def failed(self) -> Sequence[str]:
        """The checks of the verifier that fail."""
        return verify(self.config).failed

    def logs(self) -> str:
        """What to show if it does not do it."""
        return self.instance

    def match(self, *apis: Api) -> Match:
        """Match requests of these kinds by proxied processes."""
        return Match(apis, f"enricher-{self.instance}")

    def let_go(self, held: Hold, api: Api) -> None:
        """Release the late request, and wait until the broker has answered it."""
        self.proxy.apply(answered := Answered(self.match(api)))
        self.proxy.lift(held)
        assert answered.caught.wait(PATIENCE_S)


class Field(Job):
    """Fresh topics on the broker, and processes that enrich what is published there. Logs go to `folder`."""

    def __init__(self, proxy: Proxy, servers: str, names: Names, folder: Path) -> None:
        super().__init__(proxy, servers, names)
        self._folder = folder
        self.lives: list[Life] = []

    def start(self, *, proxied: bool) -> Life:
        """Start a process named `NAME`; only a proxied one's requests can be held."""
        servers = self.proxy.addresses if proxied else self.servers
        life = Life(settings_of(servers, self.names, NAME), self._folder / f"{len(self.lives)}.log")
        self.lives.append(life)
        return life

    def work(self, count: int) -> None:
        """Publish so many articles and wait until all are committed."""
        self.publish(count)
        self.wait_until_committed()

    def logs(self) -> str:
        """The logs of all processes."""
        return "\n----\n".join(life.log.read_text() for life in self.lives)

    def load(self) -> AbstractContextManager[None]:
        """Publish continuously."""
        return repeating(partial(self.publish, 5), 0.5)
