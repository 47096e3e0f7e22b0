"""Sequence classification: classes of an article, or one number for it, such as a sentiment or a quality (regression)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from enricher.errors import InvalidArticle, ModelError
from enricher.worker.heads.head import Findings, Head, HeadFiles, HeadSpec, Layers, Threshold, article_row, threshold_of
from enricher.worker.heads.labels import SCORE_STEPS, class_names, names_by_id
from enricher.worker.heads.languages import Languages
from enricher.worker.records import Classification, Float32Array, OwnedRow, TaskCard, TaskKind, Ticket

ARCHITECTURE = "ForSequenceClassification"
_DEFAULT_THRESHOLD = 0.5
_SEVERAL = "multi_label_classification"
_PROBLEM_TYPES = (None, "single_label_classification", _SEVERAL)
_NUMBER = "regression"


@dataclass(frozen=True, slots=True)
class ClassHead(Head):
    """Finds classes: with `multi_label` every label above `threshold` (default: 0.5), else the most probable one."""

    labels: tuple[str, ...]
    multi_label: bool = False
    threshold: Threshold = None

    kind: ClassVar[TaskKind] = "classification"
    listed_in: ClassVar[str] = "classifications"
    layers: ClassVar[Layers] = "classifier"
    settings: ClassVar[Mapping[str, str]] = {
        "pooling": "classification",
        "threshold": "classification with several labels at once (`problem_type` of the checkpoint)",
    }
    every_record: ClassVar[bool] = True
    labelled: ClassVar[bool] = True

    @classmethod
    def recognises(cls, files: HeadFiles) -> bool:
        """Whether the architecture is sequence classification."""
        return files.architecture.endswith(ARCHITECTURE)

    @classmethod
    def read_spec(cls, files: HeadFiles) -> tuple[HeadSpec, tuple[str, ...]]:
        """The classes, and whether several may hold."""
        problem_type, labels = files.config.get("problem_type"), names_by_id(files.config)
        several = problem_type == _SEVERAL
        if problem_type not in _PROBLEM_TYPES or (not several and len(labels) == 1):
            raise ModelError(
                f"{files.folder}: the meaning of its output is not clear (problem_type {problem_type!r}, {len(labels)} "
                f"labels). Write what the model was trained for as problem_type into config.json: regression for a "
                f"number, single_label_classification for one of several classes, multi_label_classification for labels "
                f"that each hold or do not."
            )
        names = class_names(labels, multi_label=several)
        return HeadSpec(cls.kind, names, several, "first", normalised=False, dimensions=len(names)), ()

    @classmethod
    def facts(cls, spec: HeadSpec) -> Mapping[str, Any]:
        """Whether several may hold."""
        return {"multi_label": spec.multi_label}

    @classmethod
    def settings_of(cls, spec: HeadSpec) -> frozenset[str]:
        """The threshold, which has an effect only where several classes may hold."""
        return frozenset(cls.settings if spec.multi_label else {"pooling"})

    @classmethod
    def for_task(
        cls, spec: HeadSpec, task: TaskCard, languages: Languages | None, threshold: Threshold, *, several: bool
    ) -> ClassHead:
        """The head of a task."""
        del several
        return cls(task, spec.labels, spec.multi_label, threshold, languages=languages)

    def least_score(self, label: str) -> float:
        """The threshold where several labels may hold, else 0."""
        return threshold_of(self.threshold, label, _DEFAULT_THRESHOLD) if self.multi_label else 0.0

    def find(self, ticket: Ticket, answers: list[OwnedRow]) -> list[Classification]:
        """The classes of an article, the most probable first; none if it has no tokens."""
        del ticket
        row = article_row(answers, self.task)
        if row is None:
            return []
        shares = probabilities(row, multi_label=self.multi_label)
        ranked = sorted(zip(shares, self.labels, strict=True), key=lambda each: -each[0])
        chosen = [each for each in ranked if each[0] >= self.least_score(each[1])] if self.multi_label else ranked[:1]
        return [
            {"task": self.task.name, "label": label, "score": round(share * SCORE_STEPS) / SCORE_STEPS}
            for share, label in chosen
        ]

    @classmethod
    def as_json(cls, findings: Findings) -> Findings:
        """The classes as they are."""
        assert all(0.0 <= each["score"] <= 1.0 for each in findings), "a score is a probability, never NaN"
        return findings

    @classmethod
    def text_of(cls, listed: Sequence[Mapping[str, Any]]) -> str:
        """The classes with their scores."""
        return ", ".join(f"{each['label']} {each['score']:.2f}" for each in listed) or "no class"


def probabilities(logits: Float32Array, *, multi_label: bool) -> list[float]:
    """Label probabilities: sigmoid if several labels may hold, else softmax."""
    shares: list[float] = shares_of(logits, multi_label=multi_label).tolist()
    return shares


def shares_of(logits: Float32Array, *, multi_label: bool) -> npt.NDArray[np.float64]:
    """The probabilities of labels, which are the last axis of `logits`."""
    exact = logits.astype(np.float64)
    if multi_label:
        # Far before `exp` overflows, a sigmoid is 0 or 1 to four decimals.
        alone: npt.NDArray[np.float64] = 1 / (1 + np.exp(-exact.clip(-500, 500)))
        return alone
    values = np.exp(exact - exact.max(axis=-1, keepdims=True))
    shares: npt.NDArray[np.float64] = values / values.sum(axis=-1, keepdims=True)
    return shares


@dataclass(frozen=True, slots=True)
class RegressionHead(Head):
    """Gives the raw output of the model, which may be any number."""

    kind: ClassVar[TaskKind] = "regression"
    listed_in: ClassVar[str] = "regressions"
    layers: ClassVar[Layers] = "classifier"
    settings: ClassVar[Mapping[str, str]] = {"pooling": "regression"}
    compares: ClassVar[bool] = False

    @classmethod
    def recognises(cls, files: HeadFiles) -> bool:
        """Whether it is sequence classification whose only value is a number, as `problem_type` says."""
        return files.architecture.endswith(ARCHITECTURE) and files.config.get("problem_type") == _NUMBER

    @classmethod
    def read_spec(cls, files: HeadFiles) -> tuple[HeadSpec, tuple[str, ...]]:
        """The only value. Its name in `id2label` is ignored, because transformers invents it."""
        if (labels := len(names_by_id(files.config))) != 1:
            raise ModelError(
                f"{files.folder}: its problem_type is regression, and it has {labels} labels; only a head with one number "
                f"is supported. Choose a checkpoint with one label."
            )
        return HeadSpec(cls.kind, (), multi_label=False, reads="first", normalised=False, dimensions=1), ()

    @classmethod
    def for_task(
        cls, spec: HeadSpec, task: TaskCard, languages: Languages | None, threshold: Threshold, *, several: bool
    ) -> RegressionHead:
        """The head of a task."""
        del spec, threshold, several
        return cls(task, languages=languages)

    def find(self, ticket: Ticket, answers: list[OwnedRow]) -> list[dict[str, Any]]:
        """The number of an article, with the digits of a float32; none if it has no tokens."""
        del ticket
        row = article_row(answers, self.task)
        return [] if row is None else [{"task": self.task.name, "value": float(str(row[0]))}]

    @classmethod
    def as_json(cls, findings: Findings) -> Findings:
        """The numbers as they are. The sum of finite numbers of windows may be infinite."""
        for each in findings:
            if not isfinite(each["value"]):
                raise InvalidArticle(f"the number of task {each['task']!r} is not finite", stage="publish")
        return findings

    @classmethod
    def as_values(cls, findings: Findings) -> list[Any]:
        """The numbers as they are. Raises as `as_json`."""
        return [*cls.as_json(findings)]

    @classmethod
    def text_of(cls, listed: Sequence[Mapping[str, Any]]) -> str:
        """The number, with four digits."""
        return ", ".join(f"{each['value']:.4g}" for each in listed) or "no number"
