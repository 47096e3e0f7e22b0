"""Settings -> tasks: their checkpoints, which share one encoder, and the loaded model with all of their heads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from enricher.errors import SettingsError
from enricher.worker.build.loaded_model import Model, exempt_from_collection, first_set, load_model
from enricher.worker.heads import KINDS, NER, Head, HeadSpec
from enricher.worker.heads.languages import Languages, canonical_tag
from enricher.worker.inference.checkpoint.folder import Checkpoint, require_ner
from enricher.worker.inference.checkpoint.same_encoder import first_difference
from enricher.worker.inference.run.advice import ADVICE_FILE, advice_for, measured_languages
from enricher.worker.inference.run.model import open_model
from enricher.worker.records import ModelCard, TaskCard
from enricher.worker.settings import Settings, TaskSettings


@dataclass(frozen=True, slots=True)
class Tasks:
    """All tasks of a worker: one encoder with their heads, loaded."""

    model: Model
    heads: tuple[Head, ...]
    """One for each task, in the order of the settings."""
    settings: Settings
    """The worker's settings, with the windows of the models."""

    @property
    def cards(self) -> tuple[TaskCard, ...]:
        """The cards of the tasks."""
        return tuple(head.task for head in self.heads)

    @property
    def named(self) -> bool:
        """Whether the settings name the tasks; else there is one, which was derived from them."""
        return all(card.named for card in self.cards)

    @property
    def card(self) -> ModelCard:
        """The model that stands for all: that of the first task of a leading kind, else of the first task."""
        return next((card.model for card in self.cards if KINDS[card.kind].leads), self.cards[0].model)

    @property
    def by_language(self) -> bool:
        """Whether the language of an article matters: it decides its tasks, or is one that a model was not measured in."""
        return any(head.languages or head.measured for head in self.heads)


def load_tasks(settings: Settings, *, every_shape: bool = True, own_process: bool = True) -> Tasks:
    """Prepare, load and warm the model of all tasks. Raises ModelError, SettingsError.

    `every_shape`: warm up with each shape of batches, for a process whose first articles must not wait. `own_process`: the
    process is ours alone, so that all present objects may be exempted from garbage collection.
    """
    plan = plan_tasks(settings)
    plan.require_one_encoder()
    settings = with_windows(settings, plan)
    model = load_model(settings, plan.checkpoints, every_shape=every_shape)
    kinds = Counter(each.head.kind for each in plan.checkpoints)
    heads = tuple(
        _head(plan, name, checkpoint, card, several=kinds[checkpoint.head.kind] > 1).for_records(
            skip_addresses=settings.output.skip_addresses
        )
        for name, checkpoint, card in zip(plan.names, plan.checkpoints, model.prepared.cards, strict=True)
    )
    if own_process:
        exempt_from_collection()
    return Tasks(model, heads, settings)


@dataclass(frozen=True, slots=True)
class Plan:
    """The tasks with their checkpoints open, before anything is loaded."""

    tasks: Mapping[str, TaskSettings]
    checkpoints: Sequence[Checkpoint]
    named: bool
    """Whether the settings name the tasks."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the tasks, in their order."""
        return [*self.tasks]

    @property
    def why_apart(self) -> str | None:
        """Why no worker can have these tasks, as a clause that names two models; None if all have one encoder.

        Reads all weights of encoders whose configuration is the same, unless there is one checkpoint. Raises ModelError.
        """
        first = self.checkpoints[0]
        for name, other in zip(self.names[1:], self.checkpoints[1:], strict=True):
            if different := first_difference(first, other):
                return f"tasks.{name} ({other.folder}) and tasks.{self.names[0]} ({first.folder}): {different}"
        return None

    def require_one_encoder(self) -> None:
        """Raise SettingsError if a worker cannot have these tasks."""
        if why := self.why_apart:
            raise SettingsError(
                f"{why}. A worker has one encoder: give the other model a second deployment, with its own kafka.group_id "
                "and kafka.output_topic (deploy/tasks.md says how a consumer joins the two)"
            )


def plan_tasks(settings: Settings) -> Plan:
    """Open the checkpoints of all tasks. Raises ModelError, SettingsError.

    Settings without tasks mean one task, which finds entities with the model of `model`.
    """
    if settings.tasks:
        checkpoints = [_open_checkpoint(name, task) for name, task in settings.tasks.items()]
        return Plan(settings.tasks, checkpoints, named=True)
    source = settings.model.source
    return Plan({NER: TaskSettings(source=source)}, [require_ner(open_model(source))], named=False)


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


def with_windows(settings: Settings, plan: Plan) -> Settings:
    """The settings with the windows of those models that ask for some. Raises SettingsError if two differ.

    A model that is alone asks when it is loaded: only then is it known what its tokenizer takes.
    """
    if len(plan.checkpoints) == 1:
        return settings
    batching = settings.batching
    wanted: dict[tuple[int, int], Checkpoint] = {}
    for checkpoint in plan.checkpoints:
        advice = advice_for(checkpoint.folder, checkpoint.max_window_tokens)
        if (checkpoint.folder / ADVICE_FILE).is_file():
            length_tokens = first_set(batching.max_window_tokens, default=advice.max_window_tokens)
            overlap_tokens = first_set(batching.overlap_tokens, default=advice.overlap_tokens)
            wanted.setdefault((length_tokens, overlap_tokens), checkpoint)
    if len(wanted) > 1:
        asked = " and ".join(
            f"{each.folder} asks for {length} with an overlap of {overlap}"
            for (length, overlap), each in wanted.items()
        )
        raise SettingsError(
            f"windows of one length are needed: {asked}. Set batching.max_window_tokens and batching.overlap_tokens"
        )
    if not wanted:
        return settings
    [(length_tokens, overlap_tokens)] = wanted
    windows = {"max_window_tokens": length_tokens, "overlap_tokens": overlap_tokens}
    return settings.model_copy(update={"batching": batching.model_copy(update=windows)})


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
