"""Topics, a worker and a publisher for one layout, as a user would run them: only commands and the environment.

Workers are forked, and other commands run in the test's own process, so that neither waits for an interpreter.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from commands.cli_runner import run

from support.forked import Forked
from support.mixed.forms import Forms
from support.mixed.inputs import Inputs, Publisher
from support.mixed.outputs import check
from support.stub_worker import STUB_WORKER
from tools.chaos.scene import TopicKeeper
from tools.reading import Reader
from tools.topics import Topics as Names
from tools.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

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
        self._folder.mkdir()
        self._cleanup = ExitStack()
        TopicKeeper(self.names, PARTITIONS, replicas=1).make_all()
        self.forms = Forms(layout, registry_url, self.names.input)
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
