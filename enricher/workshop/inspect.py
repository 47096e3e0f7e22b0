"""`enricher model inspect`: what a model is, which variants run here, and why the others do not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer
from rich.markup import escape
from rich.table import Table

from enricher.errors import ModelError
from enricher.worker.commands.console import data_console
from enricher.worker.inference.checkpoint.onnx_folder import OnnxModel
from enricher.worker.inference.device.resolution import resolve_device
from enricher.worker.inference.graph.catalogue import variants_for
from enricher.worker.inference.graph.recipe import read_recipe
from enricher.worker.inference.run.advice import advice_for
from enricher.worker.inference.run.model import EMBEDDED, open_model
from enricher.worker.inference.run.selection import choose, missed_target, obstacle_to, why_not_reduced
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.settings import load_settings
from enricher.workshop.arguments import DeviceOption
from enricher.workshop.calibration import recipe_lines
from enricher.workshop.manifest import problems_of_manifest
from enricher.workshop.sharing import facts_of_sources, facts_of_tasks, head_facts, print_models

if TYPE_CHECKING:
    from enricher.worker.inference.checkpoint.folder import Checkpoint
    from enricher.worker.inference.device.session import Device


def model_inspect(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE [OTHER]...]",
            help=f"Folders of models, or `{EMBEDDED}`, which is built in. Default: those of the settings' tasks, if any.",
        ),
    ] = None,
    *,
    device: DeviceOption = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a model: kind of its head, sizes, labels, digests, which precisions this machine runs, and their gate reports.

    For several models it shows whether one worker can run them, because their encoders and tokenizers are bit-identical, or
    the first difference. Without SOURCE, but with tasks in the settings, it shows a worker with these settings.
    """
    settings, chosen = load_settings(), resolve_device(device)
    if not sources and settings.tasks:
        shown = facts_of_tasks(settings, chosen)
    elif sources and len(sources) > 1:
        shown = facts_of_sources(sources, settings, chosen)
    else:
        checkpoint = open_model((sources or [EMBEDDED])[0])
        shown = {**_facts(checkpoint), "variants": _variants(checkpoint, chosen)}
    if as_json:
        sys.stdout.write(orjson.dumps(shown, option=orjson.OPT_INDENT_2).decode() + "\n")
    elif "together" in shown:
        print_models(shown)
    else:
        _print(shown)
    if problems := shown.get("manifest_problems"):
        message = f"{shown['folder']}: it differs from its manifest: {'; '.join(problems)}"
        raise ModelError(message)


def _facts(checkpoint: Checkpoint) -> dict[str, Any]:
    config = checkpoint.config
    most_window_tokens = ArticleTokenizer(checkpoint).max_window_tokens
    advice = advice_for(checkpoint.folder, most_window_tokens)
    exported = isinstance(checkpoint, OnnxModel)
    problems = problems_of_manifest(checkpoint.folder)
    return {
        "name": checkpoint.name,
        "folder": str(checkpoint.folder),
        "family": "an ONNX model of another exporter" if exported else config.model_type,
        "layers": None if exported else config.layers,
        "hidden_size": None if exported else config.hidden_size,
        "heads": None if exported else config.heads,
        "vocabulary": None if exported else config.vocab_size,
        **head_facts(checkpoint),
        "most_window_tokens": most_window_tokens,
        "window_tokens": advice.max_window_tokens,
        "overlap_tokens": advice.overlap_tokens,
        "languages_measured": list(advice.languages.measured) if advice.languages else None,
        "languages_trained": list(advice.languages.trained) if advice.languages else None,
        "int8_recipe": _recipe(checkpoint),
        "manifest": "none" if problems is None else "differs" if problems else "every file is as recorded",
        "manifest_problems": problems or [],
    }


def _recipe(checkpoint: Checkpoint) -> str | None:
    """The texts that int8 was calibrated on, and what it does not quantise; None without a recipe."""
    try:
        recipe = read_recipe(checkpoint.folder)
    except ModelError as error:
        return str(error)
    return None if recipe is None else "\n".join(recipe_lines(recipe))


def _variants(checkpoint: Checkpoint, device: Device) -> list[dict[str, Any]]:
    """Every variant for the device: whether it may serve, and why or why not."""
    cache_dir = load_settings().model.cache_dir
    chosen = choose([checkpoint], device, "auto", cache_dir=cache_dir)
    obstacles = [
        (variant, why_not_reduced([checkpoint], variant) or obstacle_to(checkpoint, device, variant, cache_dir))
        for variant in variants_for(device)
    ]
    not_auto = {variant.name: missed_target(checkpoint, variant) for variant in variants_for(device)}
    return [
        {
            "variant": variant.name,
            "precision": variant.precision,
            "device": device,
            "may_serve": obstacle is None,
            "chosen_by_auto": variant.name == chosen.variant.name,
            "why": obstacle
            or (chosen.reason if variant.name == chosen.variant.name else _if_set(not_auto[variant.name])),
        }
        for variant, obstacle in obstacles
    ]


def _if_set(missed: str | None) -> str:
    return "it may serve if its precision is set" + (f"; auto does not take it: {missed}" if missed else "")


def _print(facts: dict[str, Any]) -> None:
    console = data_console()
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in facts.items():
        if name not in {"variants", "manifest_problems"} and value is not None:
            shown = ", ".join(value) if isinstance(value, list) else str(value)
            table.add_row(f"[cyan]{name.replace('_', ' ')}[/]", escape(shown))
    console.print(table)
    variants = Table("variant", "precision", "may serve", "auto", "why")
    for variant in facts["variants"]:
        serves = "[green]yes[/]" if variant["may_serve"] else "[yellow]no[/]"
        star = "[green]*[/]" if variant["chosen_by_auto"] else ""
        variants.add_row(variant["variant"], variant["precision"], serves, star, escape(variant["why"]))
    console.print(variants)
