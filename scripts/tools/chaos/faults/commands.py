"""Faults of the operators' commands: killed in their transactions, they go on where they were, beside the live workers.

Their records are in topics of their own, which the fault itself checks.
"""

from __future__ import annotations

import subprocess
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka import Producer

from tools.chaos.crew import environment_of
from tools.chaos.faults.base import EXIT_CODES, Fault
from tools.chaos.rules import Api, DropReply, Match, Watch
from tools.chaos.scene import settings_of
from tools.reading import Reader, headers_of, source_of
from tools.topics import Topics, make_topics
from tools.waiting import wait_until

_PHASES = (Api.ADD_PARTITIONS_TO_TXN, Api.PRODUCE, Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT, Api.END_TXN)
_RATE = "50"
"""Slow enough for several transactions."""
_STANDSTILL_S = 120.0
"""Limit for one transaction. The first waits for the start, and for the session and transaction of a killed process."""
_END_S = 300.0
"""Limit for all transactions."""
_STARTS = 6


class CommandKilled(Fault):
    """Kills a command with `kill -9` in its transactions, drops an answer to EndTxn, and lets it come to its end."""

    command: ClassVar[Sequence[str]]
    on_live_topics: ClassVar[bool]
    """Whether the settings of the command name the live group and topics, or other ones."""
    records = 150

    def choose(self) -> None:
        self.kills = [self.chosen.choice(_PHASES) for _ in range(2)]
        self.about = f"in {' and '.join(each.name for each in self.kills)}"

    @abstractmethod
    def prepare(self) -> Sequence[str]:
        """Make the topics and what is in them; returns the options of the command."""

    @abstractmethod
    def check(self) -> Counter[str]:
        """Count what is wrong with what it wrote."""

    def apply(self) -> None:
        """Kill it at each request, then let it come to its end although it does not learn how one transaction ended."""
        self.topics = Topics.fresh(self.scene.cluster.bootstrap_servers, "command")
        options = [*self.command, *self.prepare()]
        for api in self.kills:
            self._kill(options, api)
        dropped = DropReply(Match({Api.END_TXN}, self._client))
        self.scene.proxy.apply(dropped)
        codes = self._run_to_its_end(options)
        self.scene.proxy.lift(dropped)
        self.about += f"; ended with {codes}"
        if codes[-1] != 0:
            self.broken.append(f"{self.name}: ended with {codes}, see {self._log.name}")

    def heal(self) -> None:
        self.broken += [f"{what}: {count}" for what, count in self.check().items() if count]

    # ---- for the kinds

    def run(self, options: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start `enricher` behind the proxy, with these arguments."""
        names = self.scene.names if self.on_live_topics else self.topics
        settings = settings_of(self.scene.proxy.addresses, names, self.topics.group)
        settings = {**settings, "worker": settings["worker"] | {"max_articles_per_second": _RATE}}
        return self.scene.launch(("tools.chaos.worker", *options), environment_of(settings), self._log)

    # ---- inside

    @property
    def _client(self) -> str:
        return f"enricher-{self.topics.group}"

    @property
    def _log(self) -> Path:
        """The file that its processes log to; their stacks are in it if they abort."""
        return self.scene.folder / f"{self.topics.group}.log"

    def _kill(self, options: Sequence[str], api: Api) -> None:
        """Kill a process in its second such request: by then it has committed something."""
        self.scene.proxy.apply(watch := Watch(Match({api}, self._client), nth=2))
        process = self.run(options)
        wait_until(lambda: watch.caught.is_set() or process.poll() is not None, _STANDSTILL_S, 0.005)
        process.kill()
        self._note_end(process.wait())
        self.scene.proxy.lift(watch)
        if not watch.caught.is_set():
            self.about += f", {api.name} did not come"

    def _note_end(self, code: int) -> None:
        """Whatever it is killed in, it does not end in a way that no fault explains."""
        if code not in EXIT_CODES:
            self.broken.append(f"{self.name}: a process ended with {code}, see {self._log.name}")

    def _run_to_its_end(self, options: Sequence[str]) -> list[int]:
        """Start it until it ends with 0 or in a way that no fault explains, as a supervisor would; returns its codes."""
        codes: list[int] = []
        while len(codes) < _STARTS and (not codes or codes[-1] in EXIT_CODES - {0}):
            process = self.run(options)
            ended = wait_until(lambda started=process: started.poll() is not None, _END_S)  # type: ignore[misc]
            process.kill()
            codes.append(process.wait())
            self._note_end(codes[-1])
            if not ended:
                self.broken.append(f"{self.name}: it stood still before its end, see {self._log.name}")
                break
        return codes


class ReplayKilled(CommandKilled):
    """The live input from its last records on, into a topic of its own."""

    name = "replay killed (kill -9)"
    command = ("replay",)
    on_live_topics = True

    def prepare(self) -> Sequence[str]:
        servers = self.scene.cluster.bootstrap_servers
        make_topics(servers, self.topics.all[1:], self.scene.partitions, replicas=len(self.scene.cluster.nodes))
        self.ends = self.scene.ends()
        self.begins = {number: max(0, end - self.records // len(self.ends)) for number, end in self.ends.items()}
        self.group = f"{self.topics.group}.replay"
        for number, offset in self.begins.items():
            place = ["--at", str(offset), "--partition", str(number)]
            codes = self._run_to_its_end(["offsets", "set", self.group, self.scene.names.input, *place])
            if codes[-1] != 0:
                self.broken.append(f"{self.name}: an offset was not set, the command ended with {codes}")
        return ["--into", self.topics.output, "--dead-letters", self.topics.dead_letters, "--group", self.group]

    def check(self) -> Counter[str]:
        """Each committed record that the group has passed has one output or dead letter, and it has come to its end."""
        reader = Reader(self.scene.cluster.bootstrap_servers, self.group)
        committed = {number: at for number, (at, _) in reader.committed_and_ends(self.scene.names.input).items()}
        read = reader.records(self.scene.names.input, begins=self.begins)
        places = [(each.partition() or 0, each.offset() or 0) for each in read]
        wanted = {place for place in places if place[1] < committed[place[0]]}
        outputs = [each for topic in self.topics.all[1:] for each in reader.records(topic)]
        found = Counter((each.partition, each.offset) for each in map(source_of, outputs))
        short = sum(committed[number] < end for number, end in self.ends.items())
        return _compared(wanted, found) | Counter(short=short)


class RedriveKilled(CommandKilled):
    """Dead letters without a key, which no newer record can supersede, that a worker made of unreadable inputs."""

    name = "redrive killed (kill -9)"
    command = ("dead-letters", "redrive")
    on_live_topics = False
    _partitions = 3

    def prepare(self) -> Sequence[str]:
        """Publish inputs that are no articles, and let a replay of them make the dead letters."""
        servers = self.scene.cluster.bootstrap_servers
        make_topics(servers, self.topics.all, self._partitions, replicas=len(self.scene.cluster.nodes))
        self.published = {(number % self._partitions, b"no article %d" % number) for number in range(self.records)}
        producer = Producer({"bootstrap.servers": servers, "log_level": 0, "acks": "all"})
        for number, value in sorted(self.published):
            producer.produce(self.topics.input, value, partition=number)
        assert producer.flush(_STANDSTILL_S) == 0
        topics = ["--into", self.topics.output, "--dead-letters", self.topics.dead_letters, "--force"]
        codes = self._run_to_its_end(["replay", "--group", f"{self.topics.group}.dead", *topics])
        if codes[-1] != 0:
            self.broken.append(f"no dead letters to redrive: the replay ended with {codes}")
        return "--rate", _RATE

    def check(self) -> Counter[str]:
        """Each input is in its partition twice: as it was, and once more with the count of its redrives."""
        reader = Reader(self.scene.cluster.bootstrap_servers, self.topics.group)
        found = Counter(
            (each.partition() or 0, each.value(), headers_of(each).get("enricher.redrive.count"))
            for each in reader.records(self.topics.input)
        )
        sent = Counter({place: count for place, count in found.items() if place[2] is not None})
        wanted = {(number, value, b"1") for number, value in self.published}
        return _compared(wanted, sent)


def _compared(wanted: set[Any], found: Counter[Any]) -> Counter[str]:
    """How many are lost, invented and doubled."""
    return Counter(
        lost=len(wanted - found.keys()),
        invented=len(found.keys() - wanted),
        doubled=sum(count > 1 for count in found.values()),
    )
