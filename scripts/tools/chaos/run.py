"""A whole run: inject faults, let the group catch up, then verify with two independent verifiers."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from enricher.operate.verify import watching
from enricher.worker.settings import Settings
from enricher.worker.wiring.kafka_clients import kafka_config
from tools.chaos.campaign import Campaign
from tools.chaos.check import check
from tools.chaos.crew import environment_of_workers
from tools.chaos.faults import plan
from tools.chaos.proxy import nodes_behind_a_proxy
from tools.chaos.scene import Scene, settings_of
from tools.kafka.properties import QUICK_TO_NOTICE
from tools.waiting import wait_until, wait_while_it_shrinks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tools.chaos.campaign import Outcome
    from tools.chaos.check import Findings
    from tools.chaos.crew import Exit
    from tools.chaos.faults import Fault
    from tools.topics import Topics

_STALL_S = 120.0
"""How long a backlog may stay as it is before the group counts as stuck; working it off may take longer."""
_SAMPLE_S = 1.0
"""How often committed offsets are sampled; each sample costs the coordinator a request."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The request: inject faults for `minutes`, or until `articles` are published."""

    seed: int
    rate_per_s: float
    minutes: float
    articles: int | None
    kinds: Sequence[type[Fault]]
    kafka: str

    @property
    def command(self) -> str:
        """The command line of this run."""
        length = f"--articles {self.articles}" if self.articles else f"--minutes {self.minutes:g}"
        return f"scripts/chaos --kafka {self.kafka} {length} --seed {self.seed} --rate {self.rate_per_s:g}"


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a run.

    `per_second`: outputs that became visible, by second. `verified`: what `enricher verify` reports.
    """

    plan: Plan
    seconds: float
    outcomes: Sequence[Outcome]
    findings: Findings
    verified: Mapping[str, Any]
    exits: Sequence[Exit]
    per_second: Mapping[int, int]
    stale_answers: int
    """Samples of committed offsets that were below the one before, although the offsets topic shows no such commit.

    Includes those after the topic was recreated, where offsets start again.
    """
    caught_up: bool

    @property
    def late(self) -> Sequence[Outcome]:
        """Faults after which the group did not publish again in time."""
        return [outcome for outcome in self.outcomes if not outcome.in_time]

    @property
    def spinning(self) -> Sequence[Outcome]:
        """Faults during which a worker was in a busy loop."""
        return [outcome for outcome in self.outcomes if outcome.spun]

    @property
    def surprising(self) -> Sequence[Outcome]:
        """Faults during which a worker ended with an exit code that they do not explain."""
        return [outcome for outcome in self.outcomes if outcome.unexpected]

    @property
    def broken(self) -> Sequence[Outcome]:
        """Faults that got less than they demand of the group while they last."""
        return [outcome for outcome in self.outcomes if outcome.broken]

    @property
    def exactly_once(self) -> bool:
        """Whether both verifiers find nothing wrong."""
        return self.caught_up and self.findings.good and self.verified["exit_code"] == 0

    @property
    def good(self) -> bool:
        return self.exactly_once and not (self.late or self.spinning or self.surprising or self.broken)

    @property
    def kinds(self) -> int:
        return len({outcome.name for outcome in self.outcomes})

    @property
    def verdict(self) -> str:
        """One line: every result, separated by semicolons."""
        found = self.findings
        return "; ".join(
            [
                f"{len(self.outcomes)} faults of {self.kinds} kinds in {self.seconds / 60:.1f} minutes",
                f"{found.inputs} inputs, {found.outputs} records, {found.dead_letters} dead letters",
                *([f"{found.gone} inputs gone with their topic"] if found.gone else []),
                f"{found.counts['lost']} lost, {found.counts['doubled']} doubled",
                ", ".join(f"{count} {what}" for what, count in found.counts.items()) or "nothing wrong",
                f"enricher verify: exit code {self.verified['exit_code']}",
                f"{found.uncommitted} records rolled back on the way",
                f"{self.stale_answers} stale answers about committed offsets",
                f"{len(self.late)} recoveries over the limit",
                f"{len(self.spinning)} times a worker was in a busy loop",
                f"{len(self.surprising)} times a worker ended with an exit code that the fault does not explain",
                f"{len(self.broken)} times a fault got less than it demands",
                "caught up" if self.caught_up else "NOT caught up",
            ]
        )


def play(asked: Plan, folder: Path, say: Callable[[str], None]) -> Run:
    """Start brokers and workers, run the faults, verify, stop everything; the workers' logs go to `folder`."""
    say("starting three brokers and three workers ...")
    with (
        nodes_behind_a_proxy(3, version=asked.kafka, properties=QUICK_TO_NOTICE) as brokers,
        Scene(folder, brokers, rate_per_s=asked.rate_per_s) as scene,
    ):
        config = kafka_config(Settings(**settings_of(scene.cluster.bootstrap_servers, scene.names, "chaos")))
        with watching(config, every_s=_SAMPLE_S) as went_back:
            campaign = Campaign(scene, say)
            scene.workload.resume()
            campaign.run(plan(asked.seed, asked.kinds), _over(asked, scene))
            seconds = time.monotonic() - scene.timeline.began_s
            say("no more faults; waiting until the group has caught up ...")
            caught_up = catch_up(scene)
        exits = list(scene.crew.exits)
        scene.crew.close()
        say("checking every record ...")
        return Run(
            asked,
            seconds,
            campaign.outcomes,
            check(scene.names, scene.timeline.seen, scene.topics.past),
            run_verify(scene.names),
            exits,
            dict(scene.timeline.per_second),
            went_back.failed,
            caught_up,
        )


def _over(asked: Plan, scene: Scene) -> Callable[[], bool]:
    if asked.articles is not None:
        articles = asked.articles
        return lambda: scene.workload.published >= articles
    end_s = time.monotonic() + 60 * asked.minutes
    return lambda: time.monotonic() > end_s


def catch_up(scene: Scene) -> bool:
    """Stop publishing; returns whether the group committed everything and the timeline read all outputs."""
    scene.proxy.lift_all()
    scene.workload.finish()
    caught_up = wait_while_it_shrinks(scene.backlog, _STALL_S, 0.5)
    # The timeline's reader is a moment behind the commit.
    return wait_until(scene.all_is_seen, _STALL_S, 0.5) and caught_up


def run_verify(names: Topics) -> dict[str, Any]:
    """Run `enricher verify --json`; returns its exit code and report."""
    topics = ["--input", names.input, "--output", names.output, "--dead-letters", names.dead_letters]
    done = subprocess.run(
        [sys.executable, "-m", "enricher", "--quiet", "verify", *topics, "--group", names.group, "--json"],
        env={**environment_of_workers(), "ENRICHER_KAFKA__BOOTSTRAP_SERVERS": names.bootstrap_servers},
        stdout=subprocess.PIPE,
        check=False,
    )
    return {"exit_code": done.returncode, "report": orjson.loads(done.stdout or b"null")}
