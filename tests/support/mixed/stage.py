"""Topics, a worker and a publisher for one layout, as a user would run them, and what happens when the registry goes away.

Only commands and the environment are used. Workers are forked, and other commands run in the test's own process, so that
neither waits for an interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from commands.cli_runner import run

from support.fault_proxy import Fault
from support.forked import Forked
from support.mixed.forms import Forms
from support.mixed.inputs import Inputs, Publisher
from support.mixed.outputs import check
from support.stub_worker import STUB_WORKER
from tools.chaos.topics import TopicKeeper
from tools.reading import Reader
from tools.topics import Topics as Names
from tools.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from support.fault_proxy import FaultProxy
    from support.mixed.layouts import Layout
    from support.mixed.outputs import Findings, OutputFormat

PARTITIONS = 4
_END_S = 60.0


class Stage:
    """One layout's topics and files, in `folder`. A worker that is started here ends with it.

    `registry_url`: what the worker and the serializers ask, a proxy's URL because of the GUIDs. `stub`: instead of the
    model.
    """

    def __init__(
        self,
        layout: Layout,
        folder: Path,
        *,
        bootstrap_servers: str,
        registry_url: str,
        output_format: OutputFormat = "json",
        settings: Mapping[str, str] | None = None,
        stub: bool = False,
    ) -> None:
        self._program = [STUB_WORKER] if stub else ["-m", "enricher"]
        self.names = Names.fresh(bootstrap_servers, f"mixed-{layout.name}")
        self._registry_url = registry_url
        self._output_format = output_format
        self._folder = folder / layout.name
        self._glue = self._folder / "glue"
        self._glue.mkdir(parents=True)
        self._cleanup = ExitStack()
        TopicKeeper(self.names, PARTITIONS, replicas=1).make_all()
        self.forms = Forms(layout, registry_url, self.names.input, self._glue)
        self.inputs = Inputs(layout, self.forms.by_name)
        self.publisher = Publisher(bootstrap_servers, self.names.input)
        self._reader = Reader(bootstrap_servers, self.names.group)
        self.log = self._folder / "worker.log"
        self.environment = self._environment(layout, settings or {})
        if output_format != "json":
            assert run("schemas", "register", env=self.environment).exit_code == 0

    def publish(self, count: int) -> None:
        """Publish the next `count` inputs."""
        self.publisher.send(self.inputs.next(count))

    def start(self, *arguments: str) -> Forked:
        """Start `enricher run`, which logs to `log`."""
        process = Forked([*self._program, "run", *arguments], self.environment, self.log)
        self._cleanup.callback(_end, process)
        return process

    def run_to_the_end(self) -> int:
        """Let a worker do everything that is there; returns its exit code."""
        return self.start("--until-caught-up").wait()

    def backlog(self) -> int:
        """How many input offsets are not committed."""
        return self._reader.lag(self.names.input)

    def wait_until_done(self, timeout_s: float) -> bool:
        """Wait until all is committed."""
        return wait_until(lambda: self.backlog() == 0, timeout_s, 0.5)

    def age_s(self) -> float:
        """Age of the oldest record that is not committed, as `enricher lag` says it."""
        result = run("lag", "--json", env=self.environment)
        assert result.exit_code == 0, f"{result.stderr}{result.exception or ''}"
        return float(json.loads(result.stdout)["age_s"] or 0.0)

    def dead_letters(self) -> int:
        """How many there are."""
        return self._reader.count(self.names.dead_letters, "read_committed")

    def check(self) -> Findings:
        """Compare all records with their inputs."""
        return check(self.names, self.publisher.places, self._output_format, self._registry_url)

    def verify(self) -> tuple[int, str]:
        """Run `enricher verify`; returns its exit code and what it printed."""
        result = run("verify", "--wait", "30", env=self.environment)
        return result.exit_code, f"{result.stdout}{result.stderr}{result.exception or ''}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def _environment(self, layout: Layout, settings: Mapping[str, str]) -> dict[str, str]:
        outside = {name: value for name, value in os.environ.items() if not name.startswith("ENRICHER_")}
        return {
            **outside,
            **self.names.variables("mixed-0"),
            "ENRICHER_ARTICLES__FORMAT": "registry",
            "ENRICHER_REGISTRY__URL": self._registry_url,
            "ENRICHER_REGISTRY__GLUE_FOLDER": str(self._glue),
            "ENRICHER_REGISTRY__CACHE_DIR": str(self._folder / "schemas"),
            "ENRICHER_REGISTRY__UNKNOWN_WAIT_S": "1",
            "ENRICHER_OUTPUT__FORMAT": self._output_format,
            **layout.settings(),
            **settings,
        }


def _end(process: Forked) -> None:
    """SIGTERM, then SIGKILL."""
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


_TURN_S = 1.0
_CATCH_UP_S = 120.0
FRESH = "Avro, prefix, registered just before the outage"


@dataclass(slots=True)
class Outage:
    """What was seen. `ages_s`: seconds since the outage began, and the age of the oldest record then."""

    fault: Fault
    ages_s: list[tuple[float, float]] = field(default_factory=list)
    dead_letters: int = 0
    """While the registry was away."""
    waiting: int = 0
    """Inputs that were not committed when it came back."""
    recovered_s: float | None = None
    """From its return until everything was committed; None if it took too long."""

    @property
    def grew(self) -> bool:
        """Whether the age of the oldest record rose from the first look to the last."""
        return len(self.ages_s) > 1 and self.ages_s[-1][1] > self.ages_s[0][1]


def ride_out(stage: Stage, proxy: FaultProxy, fault: Fault, seconds: float, rate_per_s: float) -> Outage:
    """Publish for `seconds` while the registry is away, every fourth input with a schema that the worker has not met.

    A worker must be running. Returns when everything is committed after the registry's return, or too much time has gone.
    """
    stage.inputs.add(FRESH, stage.forms.fresh_avro(str(time.time_ns())))
    stage.inputs.prepare(FRESH)
    outage = Outage(fault)
    began_s, published = time.monotonic(), 0
    with ExitStack() as over:
        over.enter_context(proxy.fault(fault))
        while (now_s := time.monotonic() - began_s) < seconds:
            due = round(rate_per_s * (now_s + _TURN_S))
            stage.publisher.send(stage.inputs.next_with(FRESH, due - published))
            published = due
            outage.ages_s.append((now_s, stage.age_s()))
            print(
                f"{fault.name}: {now_s:3.0f} s, oldest record {outage.ages_s[-1][1]:.1f} s, backlog {stage.backlog()}"
            )
            time.sleep(max(0.0, _TURN_S - (time.monotonic() - began_s - now_s)))
        # A turn may take as long as the outage on a busy machine; this is never the only look.
        outage.ages_s.append((time.monotonic() - began_s, stage.age_s()))
        outage.waiting = stage.backlog()
        outage.dead_letters = stage.dead_letters()
    returned_s = time.monotonic()
    if stage.wait_until_done(_CATCH_UP_S):
        outage.recovered_s = time.monotonic() - returned_s
    return outage
