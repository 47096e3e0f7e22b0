"""Named entities: token classification. Each token has a label, from the window that owns it.

worker/articles/record_values.py checks and writes entities, because every record has them, whatever the worker's tasks are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from enricher.worker.heads.head import Head, HeadFiles, HeadSpec, Layers, Threshold, threshold_of
from enricher.worker.heads.labels import LabelScheme, decode_entities, label_names, names_by_id
from enricher.worker.heads.languages import Languages
from enricher.worker.records import Entity, ModelCard, OwnedLabels, TaskCard, TaskKind, Ticket

ARCHITECTURE = "ForTokenClassification"
NER = "ner"
_NO_TASK = TaskCard(NER, NER, ModelCard("", "", ""), named=False)


@dataclass(frozen=True, slots=True)
class EntityHead(Head):
    """Finds entities. `names_task`: each entity names its task, because several tasks of the worker find entities.

    `threshold`: the least score of an entity; None if the score does not matter. `skip_addresses`: find no entities inside
    of URLs and e-mail addresses.
    """

    scheme: LabelScheme
    names_task: bool = False
    threshold: Threshold = None
    skip_addresses: bool = True

    kind: ClassVar[TaskKind] = NER
    listed_in: ClassVar[str] = "entities"
    layers: ClassVar[Layers] = "labels"
    settings: ClassVar[Mapping[str, str]] = {"threshold": "entities"}
    every_record: ClassVar[bool] = True
    leads: ClassVar[bool] = True
    labelled: ClassVar[bool] = True
    serves_alone: ClassVar[bool] = True
    calibrates: ClassVar[bool] = True

    @classmethod
    def of(
        cls,
        labels: Sequence[str],
        task: TaskCard = _NO_TASK,
        languages: Languages | None = None,
        *,
        names_task: bool = False,
        threshold: Threshold = None,
    ) -> EntityHead:
        """The head with these label names. Runs whose records are not written need no task."""
        return cls(task, LabelScheme.from_labels(labels), names_task, threshold, languages=languages)

    @classmethod
    def recognises(cls, files: HeadFiles) -> bool:
        """Whether the architecture is token classification."""
        return files.architecture.endswith(ARCHITECTURE)

    @classmethod
    def read_spec(cls, files: HeadFiles) -> tuple[HeadSpec, tuple[str, ...]]:
        """The labels; each is a position and a kind."""
        return cls.spec_of(label_names(names_by_id(files.config))), ()

    @classmethod
    def spec_of(cls, labels: tuple[str, ...]) -> HeadSpec:
        """The description of a head with these labels, also for a model that is ONNX already."""
        return HeadSpec(NER, labels, multi_label=False, reads="tokens", normalised=False, dimensions=len(labels))

    @classmethod
    def for_task(
        cls, spec: HeadSpec, task: TaskCard, languages: Languages | None, threshold: Threshold, *, several: bool
    ) -> EntityHead:
        """The head of a task. Entities name it if several tasks find entities."""
        return cls.of(spec.labels, task, languages, names_task=several, threshold=threshold)

    def for_records(self, *, skip_addresses: bool) -> EntityHead:
        """This head, or one that finds entities in addresses too."""
        return replace(self, skip_addresses=skip_addresses)

    @classmethod
    def labels_of(cls, spec: HeadSpec) -> tuple[str, ...]:
        """The types of entities, without their positions."""
        return LabelScheme.from_labels(spec.labels).kinds

    def least_score(self, label: str) -> float:
        """The threshold; without one, the score of an entity does not matter."""
        return threshold_of(self.threshold, label, 0.0)

    def find(self, ticket: Ticket, answers: list[OwnedLabels]) -> list[Entity]:
        """The entities of an article whose windows are all labelled."""
        article, tokens = ticket.article, ticket.tokens
        assert article is not None
        assert tokens is not None
        found = decode_entities(article, tokens, answers, self.scheme, skip_addresses=self.skip_addresses)
        if self.threshold is not None:
            found = [entity for entity in found if entity["score"] >= self.least_score(entity["label"])]
        if self.names_task:
            for entity in found:
                entity["task"] = self.task.name
        if article.source_map is not None:
            for entity in found:
                if entity["field"] == "body":
                    entity["start"], entity["end"] = article.source_map.source_range(entity["start"], entity["end"])
                    # Half of a character reference is nothing in the source, so it belongs to the entity as a whole.
                    seen = article.source_map.text_range(entity["start"], entity["end"])
                    entity["text"] = article.body[slice(*seen)]
        return found

    @classmethod
    def text_of(cls, listed: Sequence[Mapping[str, Any]]) -> str:
        """The entities with their labels."""
        return ", ".join(f"{entity['text']} {entity['label']}" for entity in listed) or "no entity"
