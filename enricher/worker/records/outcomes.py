"""The outcomes of articles (enriched records, dead letters, tombstones) and the versions of their outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal, NotRequired, TypedDict

from enricher.errors import FatalError
from enricher.worker.records.input_records import Article, FieldName, Float32Array, RawRecord, hot_record

TaskKind = str
"""The name of a kind of head (worker/heads)."""
Pooling = Literal["mean", "first_window", "max"]
"""How the answers for windows become the article's: the mean weighted by owned tokens, the first, the largest."""


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Identifies a model in records."""

    name: str
    digest: str
    """SHA-256 of its configuration, weights and tokenizer."""
    precision: str
    """The precision of the encoder, such as `fp16`."""


@dataclass(frozen=True, slots=True)
class TransformCard:
    """Identifies a team's own function in records: the name of its entry point, its package and the package's version."""

    name: str
    package: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} of {self.package} {self.version}"


@dataclass(frozen=True, slots=True)
class CatalogueCard:
    """Identifies a version of the client's catalogue in records."""

    digest: str
    """SHA-256 of its files."""
    generation: int
    """The number in its files, else 0. It counts in the versions of records, as `model.generation` does."""


@dataclass(frozen=True, slots=True)
class TaskCard:
    """Identifies a task in records."""

    name: str
    kind: TaskKind
    model: ModelCard
    pooling: Pooling | None = None
    """How windows are pooled; None for `ner`, whose tokens each have one owner."""
    vector_format: Literal["list", "float16"] = "list"
    """How records contain vectors: numbers, or float16 in base64."""
    named: bool = True
    """False if the settings name no task, and this one was derived from them: records do not name it either."""


class Entity(TypedDict):
    """A named entity: `[start, end)` of the field as it was published, in Unicode code points, and its text.

    `text` is that slice, or, if the body was HTML, what a reader sees of it (`article.source_map`). A dictionary, because an
    article has many and they are serialised as they are, with the keys in this order.
    """

    field: FieldName
    start: int
    end: int
    text: str
    label: str
    score: float  # a probability, to the fourth decimal
    source: NotRequired[str]  # `catalogue` if no model found it, but the catalogue in the text
    task: NotRequired[str]  # only where several tasks of the worker find entities
    ids: NotRequired[Sequence[Mapping[str, str]]]  # the entries of the catalogue that it may be, each with `match`
    id: NotRequired[str]  # the entry that it is
    catalogue_name: NotRequired[str]  # the entry's name
    why: NotRequired[str]  # why it is this entry (rules/catalogue.py)


@hot_record()
class Coverage:
    """How much of an article the model saw."""

    tokens: int
    windows: int
    truncated: bool


class Classification(TypedDict):
    """A class of an article: the most probable one, or each above the threshold where several may hold."""

    task: str
    label: str
    score: float  # a probability, to the fourth decimal


@hot_record(eq=False)
class Embedding:
    """The vector of an article, `float32 [dimensions]`."""

    task: TaskCard
    vector: Float32Array


@hot_record()
class TaskReport:
    """Whether a task ran on an article. `coverage`: how much it saw; None if the task is not for the article's language."""

    task: TaskCard
    coverage: Coverage | None


@hot_record()
class EnrichedRecord:
    """The findings of the model in one article."""

    article: Article
    entities: Sequence[Entity]
    coverage: Coverage
    tasks: Sequence[TaskReport]
    """A report for each task of the worker, in the order of the settings."""
    findings: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """The findings other than entities, by the field of the record that lists them (worker/heads)."""
    labels: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """How often each label of entities and classes was found, by task and label. For telemetry, not for the record."""
    transforms: Sequence[TransformCard] = ()
    """The team's own functions that the worker calls; the one before the model is first."""
    catalogue: CatalogueCard | None = None
    """The catalogue that the entities' ids are from; None without one."""

    @property
    def entities_bytes(self) -> int:
        """The memory of the entities, if they are written already. With ids it may be forty times that of the article."""
        return len(getattr(self.entities, "json", b""))

    @property
    def generation(self) -> int:
        """The number that its catalogue adds to the generation of the model in its version."""
        return self.catalogue.generation if self.catalogue else 0


class LetterForm(IntEnum):
    """How much of its input a dead letter contains; each form leaves out more than the one before."""

    WHOLE = 0
    WITHOUT_VALUE = 1
    WITHOUT_HEADERS = 2
    BARE = 3
    """The letter lacks the key too: it has only the reason and the position of the input."""

    @property
    def smaller(self) -> LetterForm | None:
        """The next smaller form; None for `BARE`."""
        return None if self is LetterForm.BARE else LetterForm(self + 1)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Why an input can never succeed. `message` never contains text of the article, unless it is `foreign`.

    `form` is the largest form to write it in; if the broker refuses one form, it may accept a smaller one. `foreign`: type
    and message are those of an error in a team's own code.
    """

    stage: Literal["decode", "transform", "tokenize", "inference", "publish"]
    error_type: str
    message: str
    attempts: int = 1
    form: LetterForm = LetterForm.WHOLE
    foreign: bool = False

    @property
    def loggable(self) -> str:
        """The message without anything that may be text of the article."""
        return "an error in your own code: the dead letter has its message" if self.foreign else self.message


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The input had no value, or was a delete event, so the output deletes its key downstream.

    `key`: what the output deletes if the input has no key.
    """

    key: bytes | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """The team's own code (`articles.transform`) wants no output for the input, whose offset is committed without one."""


Outcome = EnrichedRecord | DeadLetter | Tombstone | Skipped


_EPOCH_BITS, _OFFSET_BITS, _GENERATION_BITS = 8, 43, 12

MAX_EPOCH, MAX_OFFSET, MAX_GENERATION = (2**bits - 1 for bits in (_EPOCH_BITS, _OFFSET_BITS, _GENERATION_BITS))


def record_version(epoch: int, offset: int, generation: int) -> int:
    """The version of the output of the input at `offset`, 0 to 2**63 - 1. Raises ValueError for numbers out of range.

        bits of an int64   62 .. 55   54 .. 12        11 .. 0
                           epoch      source offset   generation of the model

    By the version an index keeps the newest output of a key. Versions order the outputs of one input partition, and so the
    outputs of one key; `schemas/README.md` says what they do not order.
    """
    _require("epoch", epoch, MAX_EPOCH)
    _require("source offset", offset, MAX_OFFSET)
    _require("generation", generation, MAX_GENERATION)
    return ((epoch << _OFFSET_BITS) | offset) << _GENERATION_BITS | generation


def epoch_of(version: int) -> int:
    """The epoch in a version."""
    return version >> (_OFFSET_BITS + _GENERATION_BITS)


def _require(name: str, value: int, largest: int) -> None:
    if not 0 <= value <= largest:
        raise ValueError(f"the {name} of a version must be 0 to {largest}, not {value}")


@dataclass(frozen=True, slots=True)
class Versioning:
    """Gives each input record the version of its output. `epoch`: `kafka.epoch`; `generation`: `model.generation`."""

    epoch: int = 0
    generation: int = 0

    def version_of(self, raw: RawRecord) -> int:
        """The version of its output. Raises FatalError if the offset is too large for one."""
        try:
            return record_version(self.epoch, raw.offset, self.generation)
        except ValueError as error:
            topic, number = raw.partition
            advice = f"make the topic again and raise kafka.epoch above {self.epoch}"
            raise FatalError(f"{topic}[{number}]: {error}; {advice}") from error
