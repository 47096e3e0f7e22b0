"""`enricher model inspect`: facts about a model, and the variants that run here or why not."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.markup import escape
from rich.table import Table

from enricher.errors import ModelError
from enricher.worker.commands.console import data_console
from enricher.worker.heads import KINDS
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.checkpoint.onnx_model import OnnxModel, read_graph
from enricher.worker.inference.checkpoint.same_encoder import encoder_digest
from enricher.worker.inference.device.hardware import resolve_device
from enricher.worker.inference.device.sessions import Device
from enricher.worker.inference.graph.builder import build
from enricher.worker.inference.graph.external import wrap
from enricher.worker.inference.graph.graph_files import OnnxWriter
from enricher.worker.inference.graph.int8 import read_recipe
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.inference.run.advice import advice_for
from enricher.worker.inference.run.model import EMBEDDED, open_model
from enricher.worker.inference.run.selection import choose, missed_target, obstacle_to, variants_for, why_not_reduced
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.settings import load_settings
from enricher.worker.wiring.formats import transform_cards
from enricher.workshop.arguments import DeviceOption, FolderArgument
from enricher.workshop.calibration import recipe_lines
from enricher.workshop.prepared_folder import manifest_of


def model_inspect(
    folder: FolderArgument = EMBEDDED,
    *,
    device: DeviceOption = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a model: kind of its head, sizes, labels, digests, which precisions this machine runs, and their gate reports.

    Whether one worker can run several models, `enricher doctor --only model` says, with these tasks in the settings.
    """
    settings, chosen, checkpoint = load_settings(), resolve_device(device), open_model(folder)
    shown = {**_facts(checkpoint), "variants": _variants(checkpoint, chosen)}
    shown["transforms"] = [*map(str, transform_cards(settings))] or None
    if as_json:
        sys.stdout.write(orjson.dumps(shown, option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        _print(shown)
    if shown["prepared_digest"] not in {None, checkpoint.digest}:
        raise ModelError(f"{shown['folder']}: it is not the model that was prepared: its files were changed")


def _facts(checkpoint: Checkpoint) -> dict[str, Any]:
    config = checkpoint.config
    most_window_tokens = ArticleTokenizer(checkpoint).max_window_tokens
    advice = advice_for(checkpoint.folder, most_window_tokens)
    exported = isinstance(checkpoint, OnnxModel)
    manifest = manifest_of(checkpoint.folder)
    return {
        "name": checkpoint.name,
        "folder": str(checkpoint.folder),
        "onnx_file": checkpoint.choice if isinstance(checkpoint, OnnxModel) else None,
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
        "prepared_digest": manifest.model_digest if manifest else None,
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
    cache_dir, refusal = load_settings().model.cache_dir, None
    try:
        if isinstance(checkpoint, OnnxModel):
            wrap(checkpoint, read_graph(checkpoint.onnx_path))
        else:
            with Path(os.devnull).open("wb") as nowhere:
                build([checkpoint], PaddedFloat32(), OnnxWriter(nowhere, os.devnull))
    except ModelError as error:  # no variant can serve a graph that cannot be built or fed
        refusal = str(error)
    chosen = choose([checkpoint], device, "auto", cache_dir=cache_dir)
    obstacles = [
        (
            variant,
            refusal or why_not_reduced([checkpoint], variant) or obstacle_to(checkpoint, device, variant, cache_dir),
        )
        for variant in variants_for(device)
    ]
    not_auto = {variant.name: missed_target(checkpoint, variant) for variant in variants_for(device)}
    return [
        {
            "variant": variant.name,
            "precision": variant.precision,
            "device": device,
            "may_serve": obstacle is None,
            "chosen_by_auto": refusal is None and variant.name == chosen.variant.name,
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
        if name != "variants" and value is not None:
            shown = ", ".join(value) if isinstance(value, list) else str(value)
            table.add_row(f"[cyan]{name.replace('_', ' ')}[/]", escape(shown))
    console.print(table)
    variants = Table("variant", "precision", "may serve", "auto", "why")
    for variant in facts["variants"]:
        serves = "[green]yes[/]" if variant["may_serve"] else "[yellow]no[/]"
        star = "[green]*[/]" if variant["chosen_by_auto"] else ""
        variants.add_row(variant["variant"], variant["precision"], serves, star, escape(variant["why"]))
    console.print(variants)


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
