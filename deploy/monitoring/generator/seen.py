"""Runs every query of the dashboard and of the recorded series against a Prometheus, and writes a page of the answers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import yaml

from deploy.monitoring.generator.expressions import metrics_of
from deploy.monitoring.generator.files import RECORDING
from deploy.monitoring.generator.index_row import INDEX
from deploy.monitoring.generator.layout import ROWS
from deploy.monitoring.generator.prometheus import EVERY_S, Prometheus, Sample

SILENT: Mapping[str, str] = {
    "hw_gpu_utilization_ratio": "without a GPU",
    "hw_gpu_memory_usage_bytes": "without a GPU",
    "hw_gpu_memory_limit_bytes": "without a GPU",
    "enricher_recovery_duration_seconds_sum": "without a recovery",
    "enricher_task_articles_total": "without tasks",
    "enricher_articles_without_task_total": "without tasks",
    "enricher_schemas_waiting_articles": "without a schema registry",
    "enricher_schemas_waiting_partitions": "without a schema registry",
    "enricher_registry_away_seconds": "without a schema registry",
    "enricher_registry_requests_total": "without a schema registry",
    "enricher_articles_fields_dropped_total": "without a wrong field",
    "job:enricher_labels_share_last_week:ratio_increase6h": "in the first week",
    "enricher_catalogue_entities_total": "without a catalogue",
    "enricher_catalogue_age_seconds": "without a catalogue",
    "enricher_catalogue_refused": "without a catalogue",
    **dict.fromkeys(
        (name for panel in INDEX.panels for query in panel.queries for name in metrics_of(query.expression)),
        "without an indexer",
    ),
}
"""Metrics whose queries may have no answer although all is well, and the reason."""
_RANGE_S = 15
"""Value of `$__rate_interval`; Grafana chooses at least four scrape intervals."""
_PATIENCE_S = 150.0
"""How long the worker may take to load its model, join the group and publish."""


@dataclass(frozen=True, slots=True)
class Question:
    """One query, and the panel that it is from."""

    place: str
    expression: str

    @property
    def may_be_silent(self) -> str:
        """Why it may have no answer although all is well; empty if it must have one."""
        return next((reason for metric, reason in SILENT.items() if metric in self.expression), "")


@dataclass(frozen=True, slots=True)
class Answer:
    """The series that Prometheus returned for a query."""

    question: Question
    samples: Sequence[Sample]


def questions() -> Iterator[Question]:
    """All queries: panels from top to bottom, then the recorded series."""
    for row in ROWS:
        for panel in row.panels:
            for query in panel.queries:
                yield Question(f"{row.title}: {panel.title}", query.asked(_RANGE_S))
    for name in dict.fromkeys(recorded_names()):
        yield Question("recorded", name)


def recorded_names() -> list[str]:
    """The names of the series in `recording.yaml`, with repetitions."""
    groups = yaml.safe_load(RECORDING.read_text("utf-8"))["groups"]
    return [rule["record"] for group in groups for rule in group["rules"]]


def answers(prometheus: Prometheus, patience_s: float = _PATIENCE_S) -> list[Answer]:
    """Repeat all queries until none is unanswered, or for `patience_s` seconds. Returns the last answers, empty ones too."""
    deadline_s = time.monotonic() + patience_s
    while True:
        heard = [Answer(question, prometheus.ask(question.expression)) for question in questions()]
        if not unanswered(heard) or time.monotonic() > deadline_s:
            return heard
        time.sleep(EVERY_S)


def unanswered(heard: Sequence[Answer]) -> list[Question]:
    """The queries that have no data although they should."""
    return [each.question for each in heard if not each.samples and not each.question.may_be_silent]


def page(heard: Sequence[Answer], version: str) -> str:
    """The answers as a Markdown page."""
    lines = [
        "# The queries of the dashboard, answered",
        "",
        "Written by `scripts/dashboard --seen`: a worker with the embedded model runs under load (headlines,",
        f"and one input in fifty that is no article) on a real broker. Prometheus {version} scrapes it every",
        f"second and evaluates the recording rules. `$__rate_interval` is {_RANGE_S} s. For several series, the",
        "smallest and the largest value are shown.",
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
