"""The part of `enricher model inspect` for several models: their heads, and how one worker would run them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from enricher.errors import ModelError
from enricher.worker.commands.console import data_console
from enricher.worker.heads import KINDS
from enricher.worker.inference.checkpoint.same_encoder import encoder_digest
from enricher.worker.inference.run.selection import choose
from enricher.worker.settings import Settings, TaskSettings
from enricher.worker.wiring.loaded_tasks import plan_tasks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from enricher.worker.inference.checkpoint.folder import Checkpoint
    from enricher.worker.inference.device.session import Device
    from enricher.worker.runtime.devices import Precision


def head_facts(checkpoint: Checkpoint) -> dict[str, Any]:
    """Facts about the head, None where its kind has no such fact, and the digests of the model and of its encoder."""
    head = checkpoint.head
    return {
        "kind": head.kind,
        "labels": list(head.labels) or None,
        **dict.fromkeys(("multi_label", "pooling", "dimensions", "normalised")),
        **KINDS[head.kind].facts(head),
        "digest": checkpoint.digest,
        "encoder_digest": encoder_digest(checkpoint),
    }


def facts_of_sources(sources: Sequence[str], settings: Settings, device: Device) -> dict[str, Any]:
    """Facts about these models, and about a worker with a task for each. Raises ModelError, SettingsError."""
    tasks = {str(number): TaskSettings(source=source) for number, source in enumerate(sources)}
    return facts_of_tasks(settings.model_copy(update={"tasks": tasks}), device, sources)


def facts_of_tasks(settings: Settings, device: Device, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Facts about a worker with these settings, with other names if given. Raises ModelError, SettingsError."""
    plan = plan_tasks(settings)
    why = plan.why_apart
    return {
        "models": [
            {"name": name, "folder": str(each.folder), **head_facts(each)}
            for name, each in zip(names or plan.names, plan.checkpoints, strict=True)
        ],
        "together": {"variant": None, "why": f"not in one worker: {why}", "rejected": []}
        if why
        else _choice(plan.checkpoints, device, settings.model.precision, settings.model.cache_dir),
    }


def _choice(checkpoints: Sequence[Checkpoint], device: Device, precision: Precision, cache_dir: Path) -> dict[str, Any]:
    """The variant that serves these heads together, and why faster ones do not."""
    try:
        choice = choose(checkpoints, device, precision, cache_dir=cache_dir)
    except ModelError as error:
        return {"variant": None, "why": str(error), "rejected": []}
    rejected = [{"variant": variant.name, "why": why} for variant, why in choice.rejected]
    return {"variant": choice.variant.name, "why": choice.reason, "rejected": rejected}


def print_models(shown: dict[str, Any]) -> None:
    """Print the models as a table, then how one worker would run them."""
    console = data_console()
    models = Table("model", "kind", "finds", "digest", "encoder")
    for each in shown["models"]:
        models.add_row(
            escape(each["name"]),
            each["kind"],
            escape(KINDS[each["kind"]].in_words(each)),
            each["digest"][:12],
            each["encoder_digest"][:12],
        )
    console.print(models)
    together = shown["together"]
    console.print(escape(f"together: {together['variant'] or 'nothing serves'} ({together['why']})"), soft_wrap=True)
    for each in together["rejected"]:
        console.print(escape(f"  not {each['variant']}: {each['why']}"), soft_wrap=True)
