"""The base class `Head`; each kind of head is a subclass in its own file.

The worker calls its methods and does not switch over kinds, except for entities, which every record has. Outside the worker,
`verify`, the index template, the gate's yardsticks and `workshop/evaluate.py` have an entry per kind.

An instance is the head of one task: it turns the answers for an article's windows into findings for the article's record.
The class knows how these findings are kept, written, read again and shown, how a checkpoint of the kind is recognised, and
which settings a task of the kind takes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from enricher.worker.heads.languages import Languages
from enricher.worker.records import Article, Float32Array, OwnedRow, Pooling, TaskCard, TaskKind, Ticket

Findings = Sequence[Any]
"""The findings of a head in one article, in the order of the record. Each kind has its own type of finding."""

Threshold = float | Mapping[str, float] | None
"""The least probability of a finding, for all labels of a task or by label. None, or a label that is missing: the kind's
default."""


@dataclass(frozen=True, slots=True)
class Head(ABC):
    """The head of a task. `languages`: None if the task is for all articles."""

    task: TaskCard
    languages: Languages | None = field(default=None, kw_only=True)
    measured: Languages | None = field(default=None, kw_only=True)
    """The languages that its model was measured in; None if nobody says."""

    kind: ClassVar[TaskKind]
    """The name of the kind, in settings and records."""
    listed_in: ClassVar[str]
    """The field of a record that lists the findings of all tasks of the kind."""
    layers: ClassVar[Layers]
    """The layers that the graph adds for the head behind the encoder."""
    settings: ClassVar[Mapping[str, str]] = {}
    """Settings that only tasks of this kind have, by name, each with a description of the models that it is for."""
    every_record: ClassVar[bool] = False
    """True if each record of a worker with tasks has the list, even if no task is of this kind."""
    leads: ClassVar[bool] = False
    """True if a record names the model of such a task, if one ran."""
    labelled: ClassVar[bool] = False
    """True if findings have a `label`, whose frequency telemetry counts."""
    serves_alone: ClassVar[bool] = False
    """True if a worker without tasks in its settings can serve such a model."""
    compares: ClassVar[bool] = True
    """True if the quality gate compares reduced precisions with fp32. If not, only fp32 serves."""
    calibrates: ClassVar[bool] = False
    """True if int8 can be calibrated for it."""

    # ---- checkpoints

    @classmethod
    @abstractmethod
    def recognises(cls, files: HeadFiles) -> bool:
        """Whether a checkpoint has a head of this kind."""

    @classmethod
    @abstractmethod
    def read_spec(cls, files: HeadFiles) -> tuple[HeadSpec, tuple[str, ...]]:
        """Read the head. Also returns the names of the files beside config.json that describe it.

        Raises ModelError if it is not a head that we build.
        """

    @classmethod
    def facts(cls, spec: HeadSpec) -> Mapping[str, Any]:
        """Facts for `model inspect --json` beside kind and labels."""
        del spec
        return {}

    # ---- tasks

    @classmethod
    def settings_of(cls, spec: HeadSpec) -> frozenset[str]:
        """The names in `settings` that have an effect on a task with this model."""
        del spec
        return frozenset(cls.settings)

    @classmethod
    def labels_of(cls, spec: HeadSpec) -> tuple[str, ...]:
        """The labels of its findings, each of which may have a threshold."""
        return spec.labels

    @classmethod
    @abstractmethod
    def for_task(
        cls, spec: HeadSpec, task: TaskCard, languages: Languages | None, threshold: Threshold, *, several: bool
    ) -> Head:
        """The head of a task. `several`: more than one task of the worker is of this kind."""

    def for_records(self, *, skip_addresses: bool) -> Head:
        """This head with the settings for the contents of records."""
        del skip_addresses
        return self

    # ---- articles

    def least_score(self, label: str) -> float:
        """The least score of a finding with this label; 0 if there is no threshold."""
        del label
        return 0.0

    @abstractmethod
    def find(self, ticket: Ticket, answers: list[Any]) -> Findings:
        """The findings for the record of an article. `answers`: the model's, for the tokens that each window owns."""

    @classmethod
    def held_bytes(cls, findings: Findings) -> int:
        """Memory that findings take while their record waits; 0 if it is little."""
        del findings
        return 0

    # ---- records

    @classmethod
    def compact(cls, findings: Findings) -> Findings:
        """A form of the findings, such as text, that takes less memory while they wait for their transaction."""
        return findings

    @classmethod
    def as_json(cls, findings: Findings) -> Any:  # noqa: ANN401  whatever orjson writes
        """The list in a record, for orjson. Raises InvalidArticle, of stage `publish`, if a finding cannot be written."""
        return findings

    @classmethod
    def as_values(cls, findings: Findings) -> list[Any]:
        """The list as values for Avro and Protobuf. Raises as `as_json`."""
        return [*findings]

    @classmethod
    def value_as_json(cls, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """The JSON form of a value of `as_values`, whose nulls are left out."""
        return value

    @classmethod
    def large_share(cls, findings: Findings, *, as_text: bool) -> str | None:
        """A clause on how many bytes of a record are findings, and how to make them fewer; None if they are few."""
        del findings, as_text
        return None

    @classmethod
    @abstractmethod
    def text_of(cls, listed: Sequence[Mapping[str, Any]]) -> str:
        """A task's findings in a record, for people: in `doctor` and `tail`."""


def is_for(head: Head, article: Article) -> bool:
    """Whether the language of an article is one that a head is for."""
    return head.languages is None or head.languages.include(article.language)


def is_unmeasured(head: Head, article: Article) -> bool:
    """Whether a head is for the article, and its model was measured in other languages only."""
    return head.measured is not None and is_for(head, article) and not head.measured.include(article.language)


def article_row(answers: Sequence[OwnedRow], task: TaskCard) -> Float32Array | None:
    """The article's row, made of its windows' rows; None if it has no tokens."""
    assert task.pooling is not None
    return pool(answers, task.pooling) if answers else None


def pool(rows: Sequence[OwnedRow], pooling: Pooling) -> Float32Array:
    """`float32 [values]`. `mean` weighs each window by the tokens that it owns, because windows overlap."""
    ordered = sorted(rows, key=lambda each: each.start)
    values = np.stack([each.row for each in ordered]).astype(np.float64)
    if pooling == "first_window":
        row = values[0]
    elif pooling == "max":
        row = values.max(axis=0)
    else:
        weights = np.array([each.tokens for each in ordered], np.float64)
        row = weights @ values / weights.sum()
    pooled_row: Float32Array = row.astype(np.float32)
    return pooled_row


def threshold_of(threshold: Threshold, label: str, default: float) -> float:
    """The least probability of a finding with this label."""
    if threshold is None:
        return default
    return threshold.get(label, default) if isinstance(threshold, Mapping) else threshold


Reads = Literal["tokens", "first", "mean", "whole"]
"""The part of the last hidden states that a head reads: the states of every token, the state of a window's first token
(special tokens included), the mean over the tokens that the window owns, or the mean over all of its tokens."""
TOKENS: frozenset[Reads] = frozenset({"tokens"})
"""The reads of a graph that has only NER heads."""
Layers = Literal["labels", "classifier", "none"]
"""The layers that the graph adds to these states: a label and its score for each token; the two layers of a
`ForSequenceClassification` head; none."""


@dataclass(frozen=True, slots=True)
class HeadSpec:
    """The description of a head.

    `labels` are names by id: position and kind for `ner`, as in config.json for `classification`, else none.
    """

    kind: TaskKind
    labels: tuple[str, ...]
    multi_label: bool
    """True if each label has its own probability (sigmoid); False if they share one (softmax)."""
    reads: Reads
    normalised: bool
    """True if the article's vector has length 1. The graph normalises nothing: windows are pooled first."""
    dimensions: int
    """Values per token (`ner`) or window, such as the number of labels, or the width of the vector."""


@dataclass(frozen=True, slots=True)
class HeadFiles:
    """A checkpoint's folder without its weights. Heads read files only through it; names are relative to the folder."""

    folder: Path
    """The folder, which messages name."""
    architecture: str
    config: Mapping[str, Any]
    """The values of config.json; the values of the encoder were checked before."""
    has: Callable[[str], bool]
    """Whether a file exists."""
    read: Callable[[str], bytes]
    """The content of a file. Raises OSError."""
    read_object: Callable[[str], Mapping[str, Any]]
    """The values of a JSON object. Raises ModelError."""


def reads_of(heads: Sequence[HeadSpec]) -> frozenset[Reads]:
    """The reads of all heads of a graph: the `reads` of `Variant.feeds` and `Variant.declare_inputs`."""
    return frozenset(head.reads for head in heads)
