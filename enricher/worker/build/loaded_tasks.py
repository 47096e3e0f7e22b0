"""Settings -> tasks: their checkpoints, the passes that they share, and a loaded model with its heads for each pass."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from enricher.errors import SettingsError
from enricher.worker.build.loaded_model import Model, exempt_from_collection, first_set, load_pass
from enricher.worker.heads import KINDS, NER, Head, HeadSpec
from enricher.worker.heads.languages import Languages, canonical_tag
from enricher.worker.inference.checkpoint.folder import Checkpoint, require_ner
from enricher.worker.inference.run.advice import ADVICE_FILE, advice_for, measured_languages
from enricher.worker.inference.run.grouping import Grouping, PassRequest, group_tasks, windows_of
from enricher.worker.inference.run.model import open_model
from enricher.worker.records import ModelCard, TaskCard
from enricher.worker.settings import Settings, TaskSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pass:
    """One encoder with the heads of all tasks that share it."""

    names: tuple[str, ...]
    """The names of its tasks."""
    model: Model
    heads: tuple[Head, ...]
    settings: Settings
    """The worker's settings, with the precision and the windows of this pass."""
    why_not_shared: tuple[str, ...] = ()
    """The first tasks of the earlier passes, each with the reason why this one does not share their encoder."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """All tasks of a worker, with their models loaded."""

    passes: tuple[Pass, ...]
    cards: tuple[TaskCard, ...]
    """Their cards, in the order of the settings."""

    @property
    def named(self) -> bool:
        """Whether the settings name the tasks; else there is one, which was derived from them."""
        return all(card.named for card in self.cards)

    @property
    def first(self) -> Model:
        """The model of the first pass."""
        return self.passes[0].model

    @property
    def card(self) -> ModelCard:
        """The model that stands for all: that of the first task of a leading kind, else of the first task."""
        return next((card.model for card in self.cards if KINDS[card.kind].leads), self.cards[0].model)

    @property
    def by_language(self) -> bool:
        """Whether the language of an article matters: it decides its tasks, or is one that a model was not measured in."""
        return any(head.languages or head.measured for each in self.passes for head in each.heads)


def load_tasks(settings: Settings, *, every_shape: bool = True, own_process: bool = True) -> Tasks:
    """Prepare, load and warm the models of all tasks. Raises ModelError, SettingsError.

    `every_shape`: warm up with each shape of batches, for a process whose first articles must not wait. `own_process`: the
    process is ours alone, so that all present objects may be exempted from garbage collection.
    """
    plan = plan_tasks(settings)
    kinds = Counter(each.head.kind for each in plan.checkpoints)
    passes: list[Pass] = []
    for number, group in enumerate(plan.grouping.groups):
        names = [plan.names[index] for index in group]
        why_not_shared = _why_not_shared(plan, number)
        if plan.named:
            reasons = "".join(f"; not with {reason}" for reason in why_not_shared)
            log.info("pass %d: %s%s", number, ", ".join(names), reasons)
        requests = [plan.requests[index] for index in group]
        first = passes[0].model if passes else None
        pass_settings = _settings_of_pass(settings, requests, plan.tasks[names[0]], first)
        model = load_pass(pass_settings, [plan.checkpoints[index] for index in group], every_shape=every_shape)
        heads = tuple(
            _head(plan, name, checkpoint, card, several=kinds[checkpoint.head.kind] > 1).for_records(
                skip_addresses=settings.output.skip_addresses
            )
            for name, checkpoint, card in zip(names, model.prepared.checkpoints, model.prepared.cards, strict=True)
        )
        passes.append(Pass(tuple(names), model, heads, pass_settings, why_not_shared))
    if own_process:
        exempt_from_collection()
    by_name = {head.task.name: head.task for each in passes for head in each.heads}
    return Tasks(tuple(passes), tuple(by_name[name] for name in plan.names))


@dataclass(frozen=True, slots=True)
class Plan:
    """Which tasks share a pass, before anything is loaded."""

    tasks: Mapping[str, TaskSettings]
    checkpoints: Sequence[Checkpoint]
    requests: Sequence[PassRequest]
    grouping: Grouping
    named: bool
    """Whether the settings name the tasks."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the tasks, in their order."""
        return [*self.tasks]


def plan_tasks(settings: Settings) -> Plan:
    """Open the checkpoints of all tasks and group them. Raises ModelError, SettingsError.

    Settings without tasks mean one task, which finds entities with the model of `model`.
    """
    if settings.tasks:
        tasks: Mapping[str, TaskSettings] = settings.tasks
        checkpoints = [_open_checkpoint(name, task) for name, task in tasks.items()]
    else:
        tasks = {NER: TaskSettings(source=settings.model.source, precision=settings.model.precision)}
        checkpoints = [require_ner(open_model(settings.model.source))]
    pairs = zip(tasks.values(), checkpoints, strict=True)
    requests = [_request(settings, task, checkpoint) for task, checkpoint in pairs]
    return Plan(tasks, checkpoints, requests, group_tasks(requests), named=bool(settings.tasks))


def _open_checkpoint(name: str, task: TaskSettings) -> Checkpoint:
    checkpoint = open_model(task.source)
    found = checkpoint.head.kind
    if task.kind not in {None, found}:
        raise SettingsError(f"tasks.{name}.kind is {task.kind}, but {checkpoint.folder} is for {found}")
    for setting in sorted(_settings_without_effect(checkpoint.head)):
        if getattr(task, setting) != TaskSettings.model_fields[setting].default:
            models = " and ".join(kind.settings[setting] for kind in KINDS.values() if setting in kind.settings)
            raise SettingsError(
                f"tasks.{name}.{setting} has no effect: {checkpoint.folder} is for {found}; it is for {models}"
            )
    _check_labels(name, task, checkpoint)
    if task.max_window_tokens and task.max_window_tokens > checkpoint.max_window_tokens:
        raise SettingsError(
            f"tasks.{name}.max_window_tokens is {task.max_window_tokens}, but {checkpoint.folder} takes "
            f"{checkpoint.max_window_tokens} at most"
        )
    return checkpoint


def _check_labels(name: str, task: TaskSettings, checkpoint: Checkpoint) -> None:
    """Refuse a threshold for a label that the model does not give: it would have no effect."""
    known = KINDS[checkpoint.head.kind].labels_of(checkpoint.head)
    unknown = [label for label in task.threshold if label not in known] if isinstance(task.threshold, dict) else ()
    if unknown:
        raise SettingsError(
            f"tasks.{name}.threshold names {unknown[0]}, but the labels of {checkpoint.folder} are {', '.join(known)}"
        )


def _settings_without_effect(head: HeadSpec) -> set[str]:
    """Settings of some kind of task that have no effect on a task with this head."""
    return {setting for kind in KINDS.values() for setting in kind.settings} - KINDS[head.kind].settings_of(head)


def _request(settings: Settings, task: TaskSettings, checkpoint: Checkpoint) -> PassRequest:
    batching, advice = settings.batching, advice_for(checkpoint.folder, checkpoint.max_window_tokens)
    lengths = (task.max_window_tokens, batching.max_window_tokens)
    overlaps = (task.overlap_tokens, batching.overlap_tokens)
    chosen = any(each is not None for each in (*lengths, *overlaps)) or (checkpoint.folder / ADVICE_FILE).is_file()
    windows = (
        first_set(*lengths, default=advice.max_window_tokens),
        first_set(*overlaps, default=advice.overlap_tokens),
    )
    return PassRequest(checkpoint, windows if chosen else None, task.precision)


def _why_not_shared(plan: Plan, number: int) -> tuple[str, ...]:
    """The first task of each earlier pass, with the reason why this pass does not share its encoder."""
    firsts = [plan.names[group[0]] for group in plan.grouping.groups]
    reasons = plan.grouping.reasons[number]
    return tuple(f"{first}: {reason}" for first, reason in zip(firsts, reasons, strict=False))


def _settings_of_pass(
    settings: Settings, requests: Sequence[PassRequest], task: TaskSettings, first: Model | None
) -> Settings:
    """The worker's settings with the precision of the pass's first `task` and the windows of the pass.

    A task that is alone and has no windows in its settings uses those of its model. All passes run in the threads of the
    `first` one.
    """
    model: dict[str, Any] = {"source": task.source, "precision": task.precision}
    if first is not None:
        model["concurrency"] = first.concurrency
    batching: dict[str, Any] = {}
    has_windows_of_model = len(requests) == 1 and task.max_window_tokens is None and task.overlap_tokens is None
    if not has_windows_of_model and (windows := windows_of(requests)):
        batching["max_window_tokens"], batching["overlap_tokens"] = windows
    return settings.model_copy(
        update={
            "model": settings.model.model_copy(update=model),
            "batching": settings.batching.model_copy(update=batching),
        }
    )


def _head(plan: Plan, name: str, checkpoint: Checkpoint, model: ModelCard, *, several: bool) -> Head:
    task, spec = plan.tasks[name], checkpoint.head
    languages = None
    if task.languages is not None:
        languages = Languages(frozenset(map(canonical_tag, task.languages)), default=task.default)
    kind = KINDS[spec.kind]
    pooling = task.pooling if "pooling" in kind.settings else None
    card = TaskCard(name, spec.kind, model, pooling, task.vector, named=plan.named)
    head = kind.for_task(spec, card, languages, task.threshold, several=several)
    measured = frozenset(map(canonical_tag, measured_languages(checkpoint.folder)))
    return replace(head, measured=Languages(measured, default=True)) if measured else head
