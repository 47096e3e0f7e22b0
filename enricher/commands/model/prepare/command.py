"""The command `model prepare`: fetch, copy, check, build, write the manifest. Each step is in a room of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from enricher.commands.console import remark_console, remark_table
from enricher.commands.model.arguments import (
    DEFAULT_LIMIT_POINTS,
    EMBEDDED,
    DeviceOption,
    GoldOption,
    LimitOption,
    Precision,
)
from enricher.commands.model.gating import check_variant, read_gold_set, reasons_of, verdicts_table
from enricher.commands.model.manifest import Manifest, entries_of, write_manifest
from enricher.commands.model.prepare.folder import copied, taking_the_place_of
from enricher.commands.model.prepare.hub import fetched
from enricher.errors import ModelError
from enricher.runtime.devices import parse_device

if TYPE_CHECKING:
    from enricher.inference.checkpoint.folder import Checkpoint
    from enricher.inference.device.session import Device
    from enricher.inference.gate.gold import GoldSet
    from enricher.inference.graph.variants import Variant

"""Where in a prepared folder the built graph lies, so that a worker need not build it at its start."""


@dataclass(frozen=True, slots=True)
class _Wish:
    """What was asked for."""

    precision: Precision
    device: Device
    device_id: int
    gold: GoldSet
    limit_points: float


def model_prepare(
    source: Annotated[
        str, typer.Argument(help="Folder of a checkpoint, or hub id (owner/name): safetensors only, no code is run.")
    ] = EMBEDDED,
    *,
    out: Annotated[Path, typer.Option(help="Folder to write; replaced where it was prepared before.")],
    device: DeviceOption = "auto",
    precision: Annotated[
        Precision, typer.Option(help="`auto` takes the fastest that this machine runs and that passes its gate.")
    ] = "auto",
    gold: GoldOption = None,
    limit_points: LimitOption = DEFAULT_LIMIT_POINTS,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.")] = None,
) -> None:
    """Make a self-contained folder of a model: files, graph, gate report, digests. A worker runs it by its path."""
    from enricher.inference.device.resolution import resolve_device  # noqa: PLC0415  the same
    from enricher.inference.graph.cache import GRAPHS_FOLDER  # noqa: PLC0415  a room that imports ONNX Runtime
    from enricher.inference.run.model import open_model  # noqa: PLC0415  the same
    from enricher.inference.tokenizer.articles import ArticleTokenizer  # noqa: PLC0415  the same

    console = remark_console()
    wish = _Wish(precision, resolve_device(device), parse_device(device).index, read_gold_set(gold), limit_points)
    found = fetched(source, revision)
    original = open_model(source if source == EMBEDDED else found.folder)
    ArticleTokenizer(original)  # what cannot run is refused before it is copied, also where no gate will need one
    if out.resolve() == original.folder.resolve():
        message = f"{out} is the source itself: choose another --out"
        raise ModelError(message)
    with taking_the_place_of(out.absolute()) as folder:
        copied(original, folder, lambda path: console.print(f"copying {path.name}"))
        variant = _proven(open_model(folder), wish, folder / GRAPHS_FOLDER, console)
        write_manifest(folder, _manifest(source, found.revision, original.digest, wish, variant, folder))
    console.print(f"{out}: {variant.name} on {wish.device}. To run it: ENRICHER_MODEL__SOURCE={out.absolute()}")


def _proven(checkpoint: Checkpoint, wish: _Wish, graphs: Path, console: Console) -> Variant:
    """The variant that a worker will take, its graph built; checks what has no report yet. Raises ModelError."""
    from enricher.inference.run.model import prepare_variant  # noqa: PLC0415  it imports ONNX Runtime
    from enricher.inference.run.selection import choose, obstacle_to  # noqa: PLC0415  the same

    for variant in _candidates(checkpoint, wish):
        if obstacle_to(checkpoint, wish.device, variant, None) is None:
            break
        checked = check_variant(
            checkpoint,
            variant,
            wish.device,
            gold=wish.gold,
            limit_points=wish.limit_points,
            cache_dir=graphs,
            keep_in=checkpoint.folder,
            device_id=wish.device_id,
        )
        remark_table(verdicts_table([checked.report]))
        for line in reasons_of(checked.report):
            console.print(line)
        if checked.report.passed:
            break
    chosen = choose(checkpoint, wish.device, wish.precision).variant
    console.print(f"building the graph of {chosen.name}")
    kept = prepare_variant(checkpoint, chosen, wish.device, cache_dir=graphs).onnx_path.parent
    _remove_others(graphs, kept)
    return chosen


def _candidates(checkpoint: Checkpoint, wish: _Wish) -> Sequence[Variant]:
    """Variants to try, fastest first; what this machine cannot run it cannot check either."""
    from enricher.inference.graph.catalogue import variants_for  # noqa: PLC0415  it imports ONNX Runtime
    from enricher.inference.run.selection import named_variant, problem_of  # noqa: PLC0415  the same

    named = wish.precision != "auto"
    asked = [named_variant(checkpoint, wish.device, wish.precision)] if named else variants_for(wish.device)
    return [variant for variant in asked if problem_of(checkpoint, variant) is None]


def _remove_others(graphs: Path, kept: Path) -> None:
    """The gate built the graph of fp32 too, which the folder need not carry."""
    import shutil  # noqa: PLC0415  used here only

    for other in graphs.iterdir():
        if other != kept:
            shutil.rmtree(other)


def _manifest(source: str, revision: str | None, digest: str, wish: _Wish, variant: Variant, folder: Path) -> Manifest:
    return Manifest(
        source=source,
        revision=revision,
        model_digest=digest,
        device=wish.device,
        variant=variant.name,
        precision=variant.precision,
        enricher=version("enricher"),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        files=entries_of(folder),
    )
