"""Topics, a worker and a publisher for one layout, as a user would run them: only commands and the environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol, Self

from tools.chaos.reader import Reader
from tools.chaos.topics import Names, TopicKeeper
from tools.registry.mixed.forms import Forms
from tools.registry.mixed.inputs import Inputs, Publisher
from tools.registry.mixed.outputs import check
from tools.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from tools.registry.mixed.layouts import Layout
    from tools.registry.mixed.outputs import Findings, OutputFormat

PARTITIONS = 4
_END_S = 60.0


class Process(Protocol):
    """A running program, used like a `Popen`."""

    @property
    def returncode(self) -> int | None:
        """Return None while it runs, else the exit code."""

    def poll(self) -> int | None:
        """The same, up to date."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises `subprocess.TimeoutExpired`."""

    def terminate(self) -> None:
        """SIGTERM."""

    def kill(self) -> None:
        """SIGKILL."""


class Stage:
    """One layout's topics and files, in `folder`. A worker that is started here ends with it.

    `registry_url`: what the worker and the serializers ask, a proxy's URL because of the GUIDs.
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
    ) -> None:
        name = f"m{uuid.uuid4().hex[:6]}-{layout.name}"
        self.names = Names(f"{name}.articles", f"{name}.entities", f"{name}.dead-letters", f"{name}.group")
        self._bootstrap_servers, self._registry_url = bootstrap_servers, registry_url
        self._output_format = output_format
        self._folder = folder / layout.name
        self._glue = self._folder / "glue"
        self._glue.mkdir(parents=True)
        self._cleanup = ExitStack()
        TopicKeeper(bootstrap_servers, self.names, PARTITIONS, replicas=1).make_all()
        self.forms = Forms(layout, registry_url, self.names.input, self._glue)
        self.inputs = Inputs(layout, self.forms.by_name)
        self.publisher = Publisher(bootstrap_servers, self.names.input)
        self._reader = Reader(bootstrap_servers, self.names.group)
        self.log = self._folder / "worker.log"
        self.environment = self._environment(layout, settings or {})

    def publish(self, count: int) -> None:
        """Publish the next `count` inputs."""
        self.publisher.send(self.inputs.next(count))

    def start(self, *arguments: str) -> Process:
        """Start `enricher run`."""
        process = self.launched("run", *arguments)
        self._cleanup.callback(_end, process)
        return process

    def launched(self, *arguments: str) -> Process:
        """Start the program, which logs to `log`."""
        with self.log.open("ab") as log:
            return subprocess.Popen([*_ENRICHER, *arguments], env=self.environment, stderr=log)

    def run_to_the_end(self) -> int:
        """Let a worker do everything that is there; returns its exit code."""
        return self.start("--until-caught-up").wait()

    def backlog(self) -> int:
        """How many input offsets are not committed."""
        offsets = self._reader.committed_and_ends(self.names.input).values()
        return sum(end - max(0, committed) for committed, end in offsets)

    def wait_until_done(self, timeout_s: float) -> bool:
        """Wait until all is committed."""
        return wait_until(lambda: self.backlog() == 0, timeout_s, 0.5)

    def age_s(self) -> float:
        """Age of the oldest record that is not committed, as `enricher lag` says it."""
        return float(self._json("lag", "--json")["age_s"] or 0.0)

    def dead_letters(self) -> int:
        """How many there are."""
        return self._reader.count(self.names.dead_letters, "read_committed")

    def check(self) -> Findings:
        """Compare all records with their inputs."""
        return check(
            self._bootstrap_servers, self.names, self.publisher.places, self._output_format, self._registry_url
        )

    def verify(self) -> tuple[int, str]:
        """Run `enricher verify`; returns its exit code and what it printed."""
        code, shown, said = self.called("verify", "--wait", "30")
        return code, shown + said

    def called(self, *arguments: str) -> tuple[int, str, str]:
        """Run the program; returns its exit code and what it wrote to standard output and to standard error."""
        command = [*_ENRICHER, "--quiet", *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def _json(self, *arguments: str) -> dict[str, Any]:
        code, shown, said = self.called(*arguments)
        if code:
            raise RuntimeError(f"enricher {' '.join(arguments)} ended with {code}: {said[-500:]}")
        found: dict[str, Any] = json.loads(shown)
        return found

    def _environment(self, layout: Layout, settings: Mapping[str, str]) -> dict[str, str]:
        outside = {name: value for name, value in os.environ.items() if not name.startswith("ENRICHER_")}
        output = {"ENRICHER_OUTPUT__FORMAT": self._output_format}
        return {
            **outside,
            "ENRICHER_KAFKA__BOOTSTRAP_SERVERS": self._bootstrap_servers,
            "ENRICHER_KAFKA__GROUP_ID": self.names.group,
            "ENRICHER_KAFKA__INSTANCE": "mixed-0",
            "ENRICHER_KAFKA__INPUT_TOPIC": self.names.input,
            "ENRICHER_KAFKA__OUTPUT_TOPIC": self.names.output,
            "ENRICHER_KAFKA__DEAD_LETTER_TOPIC": self.names.dead_letters,
            "ENRICHER_ARTICLES__FORMAT": "registry",
            "ENRICHER_REGISTRY__URL": self._registry_url,
            "ENRICHER_REGISTRY__GLUE_FOLDER": str(self._glue),
            "ENRICHER_REGISTRY__CACHE_DIR": str(self._folder / "schemas"),
            "ENRICHER_REGISTRY__TIMEOUT_S": "2",
            "ENRICHER_REGISTRY__RETRY_MAX_S": "2",
            **({} if self._output_format == "json" else {**output, "ENRICHER_REGISTRY__AUTO_REGISTER": "true"}),
            **layout.settings(),
            **settings,
        }


_ENRICHER = (sys.executable, "-m", "enricher")


def _end(process: Process) -> None:
    """SIGTERM, then SIGKILL."""
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
