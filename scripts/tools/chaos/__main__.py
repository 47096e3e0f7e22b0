"""`scripts/chaos`: a whole run. It injects one fault after another, lets the group catch up, then verifies in two ways.

Progress goes to standard error, the report to standard output; exit code 0 if every check passed. What a kind of fault
does is in `faults`, what the first verifier finds in `check`.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tools.chaos.check import Findings, check
from tools.chaos.crew import environment_of
from tools.chaos.faults import KINDS, Fault, plan
from tools.chaos.proxy import nodes_behind_a_proxy
from tools.chaos.scene import SESSION_S, Scene
from tools.kafka.properties import QUICK_TO_NOTICE
from tools.kafka.versions import DEFAULT, VERSIONS, ClusterError, find
from tools.topics import Topics
from tools.waiting import cpu_s, wait_until, wait_while_it_shrinks

LIMIT_S = 20.0
"""After a fault has healed, every partition must publish again within this time."""
DEATH_LIMIT_S = SESSION_S + 5.0
"""The limit after a worker died without leaving its group: the group notices only when the session times out."""
_GIVE_UP_S = 90.0
SPIN_CORES = 0.8
"""A worker here needs about 0.1 core; one that uses this much is in a busy loop."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one fault. Times are seconds since the timeline began."""

    name: str
    about: str
    applied_s: float
    healed_s: float
    recovered_s: float | None
    """Seconds from healing until every input partition had published something new; None if it took too long."""
    exits: Mapping[str, Sequence[int]]
    """Exit codes of the workers that ended during the fault, by name."""
    wrong: Sequence[str]
    """Exit codes that this kind of fault does not explain, and its demands on the group that were not met."""
    slow: Sequence[str]
    """A recovery over its limit, and a worker in a busy loop: on a machine that is too busy both mean nothing."""

    def __str__(self) -> str:
        recovered = "NOT" if self.recovered_s is None else f"{self.recovered_s:.1f} s"
        times = f"{self.applied_s:.0f} s to {self.healed_s:.0f} s; publishes again: {recovered}"
        found = "".join(f", {each}" for each in (*self.wrong, *self.slow))
        return f"{self.name}: {self.about}; {times}; exits {dict(self.exits) or 'none'}{found}"


def inject(scene: Scene, fault: Fault) -> Outcome:
    """Run one fault, from its injection until the group publishes again and every worker commits."""
    began_s, timeline = time.monotonic(), scene.timeline
    used_s = _cpu_s(scene)
    fault.apply()
    time.sleep(fault.lasts_s)
    fault.heal()
    healed_s = time.monotonic()
    recovered_s = _wait_until_moving(scene)
    scene.wait_until_whole()
    exits: dict[str, list[int]] = {}
    for end in scene.crew.exits_since(began_s):
        exits.setdefault(end.name, []).append(end.code)
    unexplained = [
        f"{name} ended with {code}" for name in exits for code in exits[name] if code not in fault.exit_codes
    ]
    slow, limit_s = [], DEATH_LIMIT_S if fault.silent_death else LIMIT_S
    if recovered_s is None or recovered_s > limit_s:
        slow.append(f"over the limit of {limit_s:.0f} s")
    if (cores := _busiest(scene, used_s, time.monotonic() - began_s)) > SPIN_CORES:
        slow.append(f"a worker used {cores:.1f} cores")
    times_s = (began_s - timeline.began_s, healed_s - timeline.began_s, recovered_s)
    return Outcome(fault.name, fault.about, *times_s, exits, [*unexplained, *fault.broken], slow)


def _wait_until_moving(scene: Scene) -> float | None:
    timeline = scene.timeline
    timeline.watch_from_now()
    if not wait_until(lambda: len(timeline.moved_s) >= scene.partitions, _GIVE_UP_S, 0.05):
        return None
    return max(timeline.moved_s.values()) - timeline.since_s


def _cpu_s(scene: Scene) -> dict[int, float]:
    pids = [slot.pid for slot in scene.crew.slots.values()]
    return {pid: cpu_s(pid) for pid in pids if pid}


def _busiest(scene: Scene, before: Mapping[int, float], seconds: float) -> float:
    """CPU cores used by the busiest of the processes that ran all the time."""
    now = _cpu_s(scene)
    return max([(now[pid] - then_s) / seconds for pid, then_s in before.items() if pid in now], default=0.0)


_STALL_S = 120.0
"""How long a backlog may stay as it is before the group counts as stuck; working it off may take longer."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The request: inject faults of these kinds for `minutes`."""

    seed: int
    rate_per_s: float
    minutes: float
    kinds: Sequence[type[Fault]]
    kafka: str

    @property
    def command(self) -> str:
        """The command line of this run."""
        length = f"--minutes {self.minutes:g} --seed {self.seed} --rate {self.rate_per_s:g}"
        return f"scripts/chaos --kafka {self.kafka} {length}"


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a run. `verified`: the exit code of `enricher verify`."""

    plan: Plan
    seconds: float
    outcomes: Sequence[Outcome]
    findings: Findings
    verified: int
    caught_up: bool

    @property
    def exactly_once(self) -> bool:
        """Whether both verifiers find nothing wrong."""
        return self.caught_up and self.findings.good and self.verified == 0

    @property
    def good(self) -> bool:
        return self.exactly_once and not any(each.wrong or each.slow for each in self.outcomes)

    @property
    def report(self) -> str:
        """Every result, then what is wrong, then each fault: a line each."""
        found, kinds = self.findings, len({each.name for each in self.outcomes})
        lines = [
            self.plan.command,
            f"{len(self.outcomes)} faults of {kinds} kinds in {self.seconds / 60:.1f} minutes",
            f"{found.inputs} inputs, {found.outputs} records, {found.dead_letters} dead letters",
            *([f"{found.gone} inputs gone with their topic"] if found.gone else []),
            f"{found.counts['lost']} lost, {found.counts['doubled']} doubled",
            *(f"{what}: {count}, such as {', '.join(found.wrong[what])}" for what, count in found.counts.items()),
            f"enricher verify: exit code {self.verified}",
            f"{found.uncommitted} records rolled back on the way",
            f"{sum(bool(each.wrong) for each in self.outcomes)} faults with unexplained exits or unmet demands",
            f"{sum(bool(each.slow) for each in self.outcomes)} with a late recovery or a busy loop",
            "caught up" if self.caught_up else "NOT caught up",
        ]
        return "\n".join([*lines, *map(str, self.outcomes)])


def play(asked: Plan, folder: Path, say: Callable[[str], None]) -> Run:
    """Start brokers and workers, run the faults, verify, stop everything; the workers' logs go to `folder`."""
    say("starting three brokers and three workers ...")
    with (
        nodes_behind_a_proxy(3, version=asked.kafka, properties=QUICK_TO_NOTICE) as brokers,
        Scene(folder, brokers, rate_per_s=asked.rate_per_s) as scene,
    ):
        scene.workload.resume()
        scene.wait_until_whole()
        outcomes = _outcomes(scene, asked, say)
        seconds = time.monotonic() - scene.timeline.began_s
        say("no more faults; waiting until the group has caught up ...")
        caught_up = catch_up(scene)
        scene.crew.close()
        say("checking every record ...")
        findings = check(scene.names, scene.timeline.seen, scene.topics.past)
        return Run(asked, seconds, outcomes, findings, run_verify(scene.names), caught_up)


def _outcomes(scene: Scene, asked: Plan, say: Callable[[str], None]) -> Sequence[Outcome]:
    """Inject faults until the time is over; the fault in progress is finished first."""
    outcomes: list[Outcome] = []
    end_s = time.monotonic() + 60 * asked.minutes
    for kind, chosen in plan(asked.seed, asked.kinds):
        if time.monotonic() > end_s:
            break
        if kind.possible(scene):
            outcomes.append(outcome := inject(scene, kind(scene, chosen)))
            say(f"{outcome.healed_s:6.0f} s  {len(outcomes):3d}  {outcome}; {scene.timeline.total} published")
    return outcomes


def catch_up(scene: Scene) -> bool:
    """Stop publishing; returns whether the group committed everything and the timeline read all outputs."""
    scene.proxy.lift_all()
    scene.workload.finish()
    caught_up = wait_while_it_shrinks(scene.backlog, _STALL_S, 0.5)
    # The timeline's reader is a moment behind the commit.
    return wait_until(scene.all_is_seen, _STALL_S, 0.5) and caught_up


def run_verify(names: Topics) -> int:
    """Run `enricher verify`, which prints its report; returns its exit code."""
    topics = ["--input", names.input, "--output", names.output, "--dead-letters", names.dead_letters]
    return subprocess.run(
        [sys.executable, "-m", "enricher", "--quiet", "verify", *topics, "--group", names.group],
        env=environment_of({"kafka": {"bootstrap_servers": names.bootstrap_servers}}),
        check=False,
    ).returncode


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def chaos(
    *,
    minutes: Annotated[float, typer.Option(help="For how many minutes to inject faults.")] = 5.0,
    seed: Annotated[int, typer.Option(help="Random seed: the same seed gives the same faults in the same order.")] = 1,
    rate: Annotated[float, typer.Option(help="Articles published per second.")] = 110.0,
    kafka: Annotated[str, typer.Option(help=f"Version of the brokers: {', '.join(VERSIONS)}; or oldest.")] = DEFAULT,
    only: Annotated[
        list[str] | None, typer.Option(help="Inject only faults whose name contains this; repeatable.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the logs, which stay if a check fails.")] = Path("chaos-logs"),
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
    logs = out.resolve()
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    run = play(Plan(seed, rate, minutes, kinds, kafka), logs, _say)
    if run.good:
        shutil.rmtree(logs)
    print(run.report)
    sys.exit(0 if run.good else 1)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    app(prog_name="scripts/chaos")
