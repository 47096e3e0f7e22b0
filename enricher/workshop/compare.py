"""`enricher model compare`: what changes when one model replaces another, before it does.

It gets articles from a file, or the newest articles of the input topic, and runs both models on them in the worker's
pipeline; comparison.py counts. Nothing here joins a group, commits an offset or writes a record.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from confluent_kafka import Consumer
from rich.markup import escape

from enricher.errors import FatalError, SettingsError
from enricher.worker.commands.console import Ticker, data_console, remark_console
from enricher.worker.commands.topic_options import InputOption, with_one_input
from enricher.worker.files import Line, read_lines
from enricher.worker.heads import KINDS
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.run.model import open_model
from enricher.worker.kafka.errors import Complaint, broker_errors
from enricher.worker.kafka.metadata import bounds_of, partitions_of, raw_record
from enricher.worker.kafka.partition_reader import lone_reader
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.ranges import Progress, RangeReader
from enricher.worker.records import Partition, RawRecord
from enricher.worker.settings import Settings, TaskSettings, load_settings
from enricher.worker.telemetry.logs import escape_controls
from enricher.worker.wiring.formats import ReaderOf, line_reader
from enricher.worker.wiring.kafka_clients import kafka_config
from enricher.worker.wiring.loaded_tasks import load_tasks
from enricher.worker.wiring.memory_runs import recompute
from enricher.workshop.arguments import JsonOption, ModelArgument
from enricher.workshop.comparison import COLUMNS, Answer, Answers, Comparison, compare, judge
from enricher.workshop.evaluate import require_labels, text_table
from enricher.workshop.gate.scoring import EntitySpan

CHANGED = 13
"""The exit code if more changes than is allowed."""
_MOST = 20_000

_Articles = Annotated[Path | None, typer.Option(help="JSON lines, as `enricher enrich` reads them.")]
_Topic = Annotated[bool, typer.Option("--topic", help="The newest articles of the input topic.")]
_Max = Annotated[int, typer.Option("--max", min=1, max=_MOST, help="Compare at most so many articles.")]
_MaxLost = Annotated[float | None, typer.Option(min=0, max=1, help="Fail if a larger share of A's findings is lost.")]
_MaxRelabelled = Annotated[
    float | None, typer.Option(min=0, max=1, help="Fail if a larger share of A's findings is relabelled.")
]
_Examples = Annotated[
    bool, typer.Option("--examples", help="Show the words of some changes. They are text of articles.")
]


def model_compare(  # noqa: PLR0913  one for each option
    a: ModelArgument,
    b: Annotated[str, typer.Argument(help="The model that is to replace it.")],
    *,
    articles: _Articles = None,
    topic: _Topic = False,
    most: _Max = 1000,
    input_topic: InputOption = None,
    max_lost: _MaxLost = None,
    max_relabelled: _MaxRelabelled = None,
    examples: _Examples = False,
    as_json: JsonOption = False,
) -> None:
    """Show what changes when model B replaces model A: findings lost, gained, relabelled and moved, by label.

    Either --articles or --topic names the articles. Both models run in the worker's pipeline with its
    settings. Topics are read without joining a group; nothing is committed or written.

    Exit codes: 0, 13 if more is lost or relabelled than --max-lost and --max-relabelled allow, 1 to 4 for errors.
    """
    if (articles is not None) + topic != 1:
        raise SettingsError("name either --articles or --topic")
    settings = load_settings()
    if articles is None:
        settings = with_one_input(settings, input_topic)
    checkpoints = [open_model(source) for source in (a, b)]  # before anything is read, so that errors come early
    require_labels([each.head for each in checkpoints])
    sample = _sample(settings, articles, most)
    # Lines of a file have neither keys nor headers.
    reader: ReaderOf | None = (lambda _: line_reader(settings)) if articles else None
    answers = []
    for source, checkpoint in zip((a, b), checkpoints, strict=True):
        remark_console().print(escape(f"{source}: {len(sample.records):,} articles ..."))
        answers.append(run_model(settings, checkpoint, source, sample.records, reader))
    comparison = compare(answers[0], answers[1], examples=examples)
    reasons, remarks = judge(comparison, max_lost, max_relabelled), (*sample.remarks, *comparison.remarks)
    if as_json:
        models = [{"name": each.name, "digest": each.digest, "precision": each.precision} for each in answers]
        verdict = None if reasons is None else {"passed": not reasons, "reasons": reasons}
        facts = {"models": models, **asdict(comparison), "remarks": remarks, "verdict": verdict}
        sys.stdout.write(orjson.dumps(facts, option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        _print(comparison, reasons, remarks)
    if reasons:
        raise typer.Exit(CHANGED)


def _sample(settings: Settings, articles: Path | None, most: int) -> Sample:
    """The articles that were asked for. Raises SettingsError if there are none, FatalError."""
    if articles is not None:
        sample = file_sample(articles, most)
    else:
        with Ticker(remark_console()) as ticker:
            sample = newest_sample(kafka_config(settings), most, ticker.show_step)
    if not sample.records:
        raise SettingsError("; ".join(["there are no articles to compare", *sample.remarks]))
    return sample


def _print(comparison: Comparison, reasons: Sequence[str] | None, remarks: Sequence[str]) -> None:
    console, said = data_console(), remark_console()
    console.print(text_table(COLUMNS, (row.cells for row in comparison.rows)))
    for row in comparison.rows:
        for kind, texts in row.examples.items():
            for text in texts:
                console.print(escape(escape_controls(f"{kind}: {text}")))
    said.print(f"{comparison.changed_articles:,} of {comparison.articles:,} articles change")
    for line in (*remarks, *(reasons or ())):
        said.print(escape(escape_controls(line)))
    if reasons is not None:
        said.print("failed" if reasons else "passed")


_MAX_BYTES = 512 * 2**20
"""All articles of a comparison are in memory."""
_MAX_LINE_BYTES = 128 * 2**20


@dataclass(slots=True)
class Sample:
    """At most `most` articles, of at most 512 MiB. `remarks`: sentences that a reader of the result should know."""

    most: int
    records: list[RawRecord] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    _bytes: int = 0

    def skip(self, number: int, offsets: range) -> None:
        """Note records that no client can read."""
        self.remarks.append(f"{len(offsets):,} records of partition {number} cannot be read (a damaged batch).")

    def take(self, records: Iterable[RawRecord]) -> None:
        """Take records until there are enough."""
        for record in records:
            if len(self.records) == self.most:
                self.remarks.append(f"Only {self.most:,} articles are compared (--max).")
                return
            self._bytes += record.size_bytes
            if self._bytes > _MAX_BYTES:
                self.remarks.append("Only the articles that fit into 512 MiB are compared.")
                return
            self.records.append(record)


def file_sample(path: Path, most: int) -> Sample:
    """The first articles of a file of JSON lines, plain or gzip. Raises FatalError."""
    sample = Sample(most)
    try:
        with path.open("rb") as stream:
            lines = read_lines(stream, str(path), max_line_bytes=_MAX_LINE_BYTES, gzipped=path.suffix == ".gz")
            place = Partition(str(path), 0)
            sample.take(RawRecord(place, each.number, None, each.value) for each in lines if isinstance(each, Line))
    except OSError as error:
        raise FatalError(f"cannot open {path}: {error.strerror}") from error
    return sample


def newest_sample(config: KafkaConfig, most: int, progress: Progress) -> Sample:
    """The newest committed records of the input topic that have a value, about as many of each partition that has any.

    Raises BrokerError.
    """
    sample, topic, complaint = Sample(most), config.input_topic, Complaint()
    with closing(lone_reader(config, complaint, {})) as reader:
        bounds = _bounds(reader.consumer, config, complaint)
    of_each = -(-most // max(1, sum(low < high for low, high in bounds.values())))
    ranges = {number: (max(low, high - of_each), high) for number, (low, high) in bounds.items()}
    with closing(RangeReader(config, committed_only=True, progress=progress)) as reading:
        messages = reading.read(topic, ranges, f"reading '{topic}'", sample.skip)
        sample.take(raw_record(each) for each in messages if each.value() is not None)
    return sample


def _bounds(consumer: Consumer, config: KafkaConfig, complaint: Complaint) -> dict[int, tuple[int, int]]:
    """The first offset and the end of each partition of the input topic."""
    topic, timeout_s = config.input_topic, config.request_timeout_s
    with broker_errors(consumer, f"asking for the offsets of '{topic}'", complaint):
        return {each.number: bounds_of(consumer, each, timeout_s) for each in partitions_of(consumer, topic, timeout_s)}


_TASK = "compared"


def run_model(
    settings: Settings, checkpoint: Checkpoint, source: str, records: Sequence[RawRecord], reader: ReaderOf | None
) -> Answers:
    """Run all records through a worker with this model alone. Blocks. Raises ModelError, SettingsError."""
    kind = checkpoint.head.kind
    tasks = load_tasks(_settings_for(settings, source, kind))
    values = recompute(settings, tasks, records, reader=reader)
    answers = [None if value is None else _answer_of(orjson.loads(value), kind) for value in values]
    card = tasks.card
    return Answers(card.name, card.digest, card.precision, KINDS[kind].labels_of(checkpoint.head), answers)


def _settings_for(settings: Settings, source: str, kind: str) -> Settings:
    """The settings of a worker that serves only this model."""
    model = settings.model.model_copy(update={"source": source})
    tasks = {} if KINDS[kind].serves_alone else {_TASK: TaskSettings(source=source)}
    return settings.model_copy(update={"model": model, "tasks": tasks})


def _answer_of(record: Mapping[str, Any], kind: str) -> Answer:
    return {
        EntitySpan(each.get("field", "body"), each.get("start", 0), each.get("end", 0), each["label"]): each.get(
            "text", ""
        )
        for each in record.get(KINDS[kind].listed_in) or ()
    }
