"""Settings -> the loaded model with the heads of all tasks, warmed up, and the rules of its windows and batches.

Tasks share one encoder; settings without tasks mean one task.
"""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from enricher.errors import SettingsError
from enricher.worker.files.live_catalogue import LiveCatalogue
from enricher.worker.heads import KINDS, NER, Head, HeadSpec
from enricher.worker.heads.languages import Languages, canonical_tag
from enricher.worker.inference.checkpoint.folder import Checkpoint, require_ner
from enricher.worker.inference.checkpoint.same_encoder import first_difference
from enricher.worker.inference.device.hardware import default_concurrency, processor_name
from enricher.worker.inference.device.sessions import Device, Runtime
from enricher.worker.inference.run.advice import (
    ADVICE_FILE,
    Advice,
    advice_for,
    cutter_for,
    gpu_batch_tokens,
    measured_languages,
)
from enricher.worker.inference.run.engine import OnnxEngine
from enricher.worker.inference.run.model import PreparedModel, open_model, prepare_heads
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import ModelCard, TaskCard
from enricher.worker.records.outcomes import MAX_GENERATION
from enricher.worker.rules.batching import BatchRules
from enricher.worker.rules.catalogue import TextSearch
from enricher.worker.rules.windowing import WindowCutter
from enricher.worker.settings import Settings, TaskSettings

log = logging.getLogger(__name__)
Value = TypeVar("Value")
# Buckets are narrow where news has many windows. Windows above the last edge go into the last bucket.
DEFAULT_BUCKET_EDGES = (16, 24, *range(32, 128, 16), *range(128, 513, 32))
DEFAULT_BATCH_TOKENS: dict[Runtime, int] = {
    "cpu": 512,
    "openvino-fp32": 512,
    "openvino-bf16": 1024,
    "openvino-int8": 1024,
    "cuda": 8192,
}
"""The default of each runtime, measured on CPUs without AMX. The value for a GPU is for fp32: it is eight times slower
than fp16, so smaller batches keep the GPU busy. In fp16 it depends on the model (inference/run/advice.py)."""
RUN_OVERHEAD_TOKENS: dict[Runtime, int] = {
    "cpu": 16,
    "openvino-fp32": 20,
    "openvino-bf16": 32,
    "openvino-int8": 32,
    "cuda": 512,
}
"""The default of each runtime, measured on CPUs without AMX. The value for GPUs is an estimate: what a GPU computes in a
millisecond."""
EARLY_OVERHEAD: dict[Device, float] = {"cpu": 0.25, "cuda": 0.04}
"""The share of a batch that the fixed cost of a run may be at half load, if it goes to an idle thread before it is full. In
simulations a batch costs at most 2 % more at half load with these values. Runs on a GPU have a larger fixed cost and fill
large batches, so the value is smaller there."""


@dataclass(frozen=True, slots=True)
class Model:
    """A loaded, warmed-up model with its tokenizer."""

    prepared: PreparedModel
    tokenizer: ArticleTokenizer
    engine: OnnxEngine
    advice: Advice
    concurrency: int

    @property
    def card(self) -> ModelCard:
        """Identifies the model in records."""
        return self.engine.card


@dataclass(frozen=True, slots=True)
class Tasks:
    """All tasks of a worker: one encoder with their heads, loaded."""

    model: Model
    heads: tuple[Head, ...]
    """A head for each task, in the order of the settings."""
    settings: Settings
    """The worker's settings, with the windows of the models."""
    catalogue: LiveCatalogue | None = None
    """The catalogue that entities are looked up in."""

    @property
    def cards(self) -> tuple[TaskCard, ...]:
        """The cards of the tasks."""
        return tuple(head.task for head in self.heads)

    @property
    def named(self) -> bool:
        """Whether the settings name the tasks; if not, the only task was derived from them."""
        return all(card.named for card in self.cards)

    @property
    def card(self) -> ModelCard:
        """The model that represents all tasks: that of the first task of a leading kind, else of the first task."""
        return next((card.model for card in self.cards if KINDS[card.kind].leads), self.cards[0].model)

    @property
    def by_language(self) -> bool:
        """Whether languages of articles matter: to tasks, to the catalogue, or as those that a model was measured in."""
        return self.catalogue is not None or any(head.languages or head.measured for head in self.heads)


def load_tasks(settings: Settings, *, every_shape: bool = True, own_process: bool = True) -> Tasks:
    """Prepare, load and warm the model of all tasks. Raises ModelError, SettingsError.

    `every_shape`: warm up with each shape of batches, for a process whose first articles must not wait. `own_process`: the
    process is ours alone, so that all present objects may be exempted from garbage collection.
    """
    plan = plan_tasks(settings)
    plan.require_one_encoder()
    settings = with_windows(settings, plan)
    catalogue = open_catalogue(settings)  # before the model, which takes longer
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
    return Tasks(model, heads, settings, catalogue)


def open_catalogue(settings: Settings) -> LiveCatalogue | None:
    """The catalogue of these settings; None without one. Raises SettingsError if it is wrong."""
    wanted = settings.catalogue
    if wanted.path is None:
        return None
    most = MAX_GENERATION - settings.model.generation
    search = TextSearch(wanted.find_min_letters, wanted.labels) if wanted.find == "text" else None
    return LiveCatalogue(wanted.path, labels=wanted.labels, max_generation=most, search=search)


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
        """The reason why no worker can have these tasks, as a clause that names two models; None if all have one encoder.

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
    """The settings with the windows that the models' folders advise. Raises SettingsError if two models differ.

    The advice of a single model is read when it is loaded, because its limit depends on its tokenizer.
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


def load_model(settings: Settings, checkpoints: Sequence[Checkpoint], *, every_shape: bool = True) -> Model:
    """Prepare, load and warm the model of checkpoints that share an encoder. Raises ModelError.

    Without `every_shape` only a long and a short window are run. OpenVINO then compiles each shape of batches when it first
    occurs, which a call with few articles does not notice.
    """
    wanted = settings.model
    prepared = prepare_heads(
        checkpoints,
        device=wanted.device,
        precision=wanted.precision,
        cache_dir=wanted.cache_dir,
    )
    tokenizer = ArticleTokenizer(prepared.checkpoint, max_article_tokens=settings.articles.max_article_tokens)
    advice = advice_for(prepared.checkpoint.folder, tokenizer.max_window_tokens)
    concurrency = wanted.concurrency or default_concurrency(prepared.device)
    engine = OnnxEngine(prepared, threads_per_run=1, pad_id=tokenizer.pad_id, concurrency=concurrency)
    model = Model(prepared, tokenizer, engine, advice, concurrency)
    lengths, batch_tokens = window_lengths(settings, model), batch_rules(settings, model).max_batch_tokens
    engine.warm_up(lengths if every_shape else (), batch_tokens=batch_tokens)
    log.info(
        "model %s (%s) on %s, concurrency %d", engine.card.name, engine.card.precision, engine.provider, concurrency
    )
    return model


def exempt_from_collection() -> None:
    """Exempt all existing objects, which live as long as the process, from garbage collection.

    Otherwise each full collection visits all modules: it stops all threads for 70 ms, a twelfth of the loop's time
    (measured).
    """
    gc.collect()
    gc.freeze()


def window_cutter(settings: Settings, model: Model) -> WindowCutter:
    """The cutter of this model's windows. Raises SettingsError if the model does not take windows of this length."""
    batching, advice = settings.batching, model.advice
    overlap_tokens = advice.overlap_tokens if batching.overlap_tokens is None else batching.overlap_tokens
    return cutter_for(model.tokenizer, batching.max_window_tokens or advice.max_window_tokens, overlap_tokens)


def batch_rules(settings: Settings, model: Model) -> BatchRules:
    """The batch rules for this model on its device."""
    batching, variant = settings.batching, model.prepared.variant
    return BatchRules(
        bucket_edges=batching.bucket_edges or DEFAULT_BUCKET_EDGES,
        max_batch_tokens=batching.max_batch_tokens or default_batch_tokens(model.prepared),
        max_wait_s=batching.max_wait_ms / 1000,
        run_overhead_tokens=RUN_OVERHEAD_TOKENS[variant.runtime],
        early_overhead=EARLY_OVERHEAD[model.prepared.device],
    )


def default_batch_tokens(model: PreparedModel) -> int:
    """Tokens of a batch unless a setting says otherwise."""
    variant = model.variant
    if variant.runtime == "cuda" and variant.packs and variant.reduced:
        return gpu_batch_tokens(model.checkpoint.config, processor_name("cuda", model.device_id))
    return DEFAULT_BATCH_TOKENS[variant.runtime]


def window_lengths(settings: Settings, model: Model) -> list[int]:
    """Approximate lengths of batches: the bucket edges up to the longest window."""
    longest = window_cutter(settings, model).max_window_tokens
    return [*(edge for edge in batch_rules(settings, model).bucket_edges if edge < longest), longest]


def first_set(*values: Value | None, default: Value) -> Value:
    """The first value that is not None: 0 counts as set."""
    return next((value for value in values if value is not None), default)
