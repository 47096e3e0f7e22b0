"""A real Prometheus that scrapes one worker every second and evaluates our rules. Its data is temporary."""

from __future__ import annotations

import json
import math
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

from tools.programs import found, missing
from tools.waiting import stop

PROGRAM = "prometheus"
JOB = "enricher"
EVERY_S = 1
"""Seconds between scrapes, and between evaluations of rules."""
WAIT_S = 5
"""The `for` of alerts in a test: several scrapes, so that a late one on a busy machine fires nothing."""
_START_S = 60.0
_STARTS = 3
_ANSWER_S = 20.0
_PAUSE_S = 0.1


class PrometheusError(Exception):
    """Prometheus did not start, or refused a query."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The value of one series at one moment."""

    labels: tuple[tuple[str, str], ...]
    value: float


class Prometheus:
    """A context manager: it is ready when `__enter__` returns. Raises PrometheusError if it cannot be started."""

    def __init__(self, target: str, rules: Sequence[Path]) -> None:
        self._target = target
        self._rules = rules
        self._opened = ExitStack()
        self._address = ""

    def __enter__(self) -> Self:
        program = found(PROGRAM)
        if program is None:
            raise PrometheusError(missing(PROGRAM))
        folder = Path(self._opened.enter_context(tempfile.TemporaryDirectory(prefix="enricher-prometheus-")))
        (folder / "prometheus.yml").write_text(json.dumps(self._configuration()), "utf-8")  # JSON is YAML
        try:
            self._start(program, folder)
        except BaseException:
            self._opened.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def ask(self, expression: str) -> list[Sample]:
        """Evaluate an expression now: the series that have a value, sorted by their labels."""
        result = self._get(f"query?query={quote(expression)}")["result"]
        samples = [Sample(tuple(sorted(each["metric"].items())), float(each["value"][1])) for each in result]
        return sorted((sample for sample in samples if not math.isnan(sample.value)), key=lambda sample: sample.labels)

    def firing(self) -> set[str]:
        """The names of the firing alerts."""
        return {each["labels"]["alertname"] for each in self._get("alerts")["alerts"] if each["state"] == "firing"}

    def healthy_rules(self) -> dict[str, str]:
        """The result of each rule's last evaluation, by name: `ok`, or the error."""
        groups = self._get("rules")["groups"]
        return {rule["name"]: rule.get("lastError") or rule["health"] for group in groups for rule in group["rules"]}

    def version(self) -> str:
        """The version of the program."""
        return str(self._get("status/buildinfo")["version"])

    def _configuration(self) -> dict[str, Any]:
        return {
            "global": {f"{what}_interval": f"{EVERY_S}s" for what in ("scrape", "evaluation")},
            "rule_files": [str(path) for path in self._rules],
            "scrape_configs": [
                {"job_name": JOB, "scrape_timeout": f"{EVERY_S}s", "static_configs": [{"targets": [self._target]}]}
            ],
        }

    def _start(self, program: Path, folder: Path) -> None:
        """Start it on a free port. Another program may take the port first, so this is tried several times."""
        log = folder / "log"
        for _ in range(_STARTS):
            self._address = f"127.0.0.1:{_free_port()}"
            with log.open("ab") as output:
                process = subprocess.Popen(
                    [
                        program,
                        f"--config.file={folder / 'prometheus.yml'}",
                        f"--storage.tsdb.path={folder / 'data'}",
                        f"--web.listen-address={self._address}",
                    ],
                    stdout=output,
                    stderr=output,
                )
            self._opened.callback(stop, process)
            if self._answers(process):
                return
        raise PrometheusError(f"{program} does not start:\n{log.read_text('utf-8', 'replace')[-2_000:]}")

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        deadline_s = time.monotonic() + _START_S
        while process.poll() is None and time.monotonic() < deadline_s:
            try:
                with urlopen(f"http://{self._address}/-/ready", timeout=_ANSWER_S):
                    return True
            except (URLError, OSError):
                time.sleep(_PAUSE_S)
        return False

    def _get(self, path: str) -> dict[str, Any]:
        try:
            with urlopen(f"http://{self._address}/api/v1/{path}", timeout=_ANSWER_S) as answer:
                return dict(json.load(answer)["data"])
        except URLError as error:
            raise PrometheusError(f"{path}: {error}") from error


def impatient_rules(source: Path, target: Path) -> Path:
    """Write our alerts to `target` with every `for` shortened to `WAIT_S`."""
    text = re.sub(r"^( +for:) .*$", rf"\1 {WAIT_S}s", source.read_text("utf-8"), flags=re.MULTILINE)
    target.write_text(text, "utf-8")
    return target


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
