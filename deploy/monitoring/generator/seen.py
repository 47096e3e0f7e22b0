"""Every query of the dashboard and every recorded series, asked of a Prometheus, and a page with what it answered."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import yaml

from deploy.monitoring.generator.files import RECORDING
from deploy.monitoring.generator.layout import ROWS
from deploy.monitoring.generator.prometheus import EVERY_S, Prometheus, Sample

SILENT: Mapping[str, str] = {
    "hw_gpu_utilization_ratio": "without a GPU",
    "hw_gpu_memory_usage_bytes": "without a GPU",
    "hw_gpu_memory_limit_bytes": "without a GPU",
    "enricher_recovery_duration_seconds_sum": "without a recovery",
}
"""Metrics whose queries may have no answer while all is well, and when that is."""
_RANGE_S = 15
"""What Grafana would choose for `$__rate_interval` is at least four scrapes."""
_PATIENCE_S = 150.0
"""Until the worker has loaded its model, has joined and has published."""


@dataclass(frozen=True, slots=True)
class Question:
    """One query, and where it stands."""

    place: str
    expression: str

    @property
    def may_be_silent(self) -> str:
        """When it has no answer though all is well; empty where it must have one."""
        return next((reason for metric, reason in SILENT.items() if metric in self.expression), "")


@dataclass(frozen=True, slots=True)
class Answer:
    """What Prometheus said."""

    question: Question
    samples: Sequence[Sample]


def questions() -> Iterator[Question]:
    """All of them: panels from top to bottom, then the recorded series."""
    for row in ROWS:
        for panel in row.panels:
            for query in panel.queries:
                yield Question(f"{row.title}: {panel.title}", query.asked(_RANGE_S))
    for name in dict.fromkeys(recorded_names()):
        yield Question("recorded", name)


def recorded_names() -> list[str]:
    """The series that `recording.yaml` makes."""
    groups = yaml.safe_load(RECORDING.read_text("utf-8"))["groups"]
    return [rule["record"] for group in groups for rule in group["rules"]]


def answers(prometheus: Prometheus, patience_s: float = _PATIENCE_S) -> list[Answer]:
    """Ask all until all have answered that must, at most for so long; the last answers, empty ones included."""
    deadline_s = time.monotonic() + patience_s
    while True:
        heard = [Answer(question, prometheus.ask(question.expression)) for question in questions()]
        if not unanswered(heard) or time.monotonic() > deadline_s:
            return heard
        time.sleep(EVERY_S)


def unanswered(heard: Sequence[Answer]) -> list[Question]:
    """Those without data that should have some."""
    return [each.question for each in heard if not each.samples and not each.question.may_be_silent]


def page(heard: Sequence[Answer], version: str) -> str:
    """All answers as a page in Markdown."""
    lines = [
        "# The queries of the dashboard, answered",
        "",
        "Written by `scripts/dashboard --seen`: a worker with the embedded model under load (headlines, and one input in",
        f"fifty that is no article) on a real broker, scraped every second by Prometheus {version}, with the recording",
        f"rules loaded. Ranges that Grafana would choose are {_RANGE_S} s here. Of several series the smallest and the",
        "largest value are shown.",
        "",
        "| where | query | series | value |",
        "|---|---|---|---|",
        *(_line(answer) for answer in heard),
    ]
    return "\n".join(lines) + "\n"


def _line(answer: Answer) -> str:
    query = answer.question.expression.replace("|", "\\|")
    return f"| {answer.question.place} | `{query}` | {len(answer.samples)} | {_values(answer)} |"


def _values(answer: Answer) -> str:
    values = [sample.value for sample in answer.samples]
    if not values:
        return f"none {answer.question.may_be_silent}".strip()
    least, most = min(values), max(values)
    return f"{least:.4g}" if least == most else f"{least:.4g} to {most:.4g}"
