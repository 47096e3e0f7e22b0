"""One number for an article, such as a sentiment or a quality: sequence classification with `problem_type` regression."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar

from enricher.errors import InvalidArticle, ModelError
from enricher.worker.heads.classification import ARCHITECTURE
from enricher.worker.heads.head import Findings, Head, HeadFiles, HeadSpec, Layers, Threshold, article_row
from enricher.worker.heads.labels import names_by_id
from enricher.worker.heads.languages import Languages
from enricher.worker.records import OwnedRow, TaskCard, TaskKind, Ticket

PROBLEM_TYPE = "regression"


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
        return files.architecture.endswith(ARCHITECTURE) and files.config.get("problem_type") == PROBLEM_TYPE

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
    def summaries(cls, findings: Findings) -> Iterator[str]:
        """A line for each number."""
        return (f"{each['task']} {each['value']:.4g}" for each in findings)

    @classmethod
    def tail_text(cls, listed: Sequence[Mapping[str, Any]]) -> str:
        """The number, with four digits."""
        return ", ".join(f"{each['value']:.4g}" for each in listed) or "no number"
