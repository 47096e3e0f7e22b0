"""`enricher model prepare`: any checkpoint -> a self-contained folder that a worker runs, gate report included."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from enricher.commands.console import remark_console, remark_table
from enricher.commands.model.arguments import DeviceOption, GoldOption, LimitOption
from enricher.commands.model.gating import check_variant, reasons_of, verdicts_table
from enricher.commands.model.hub import fetched
from enricher.commands.model.manifest import Manifest, entries_of, write_manifest
from enricher.commands.model.prepared_folder import copied, replacing
from enricher.errors import ModelError
from enricher.inference.device.resolution import resolve_device
from enricher.inference.gate.gold import DEFAULT_GOLD, read_gold
from enricher.inference.gate.verdict import DEFAULT_LIMIT_POINTS
from enricher.inference.graph.cache import GRAPHS_FOLDER
from enricher.inference.graph.catalogue import variants_for
from enricher.inference.run.model import EMBEDDED, open_model, prepare_variant
from enricher.inference.run.selection import Precision, choose, named_variant, obstacle_to, problem_of
from enricher.inference.tokenizer.articles import ArticleTokenizer
from enricher.runtime.devices import parse_device

if TYPE_CHECKING:
    from enricher.inference.checkpoint.folder import Checkpoint
    from enricher.inference.device.session import Device
    from enricher.inference.gate.gold import GoldSet
    from enricher.inference.graph.variants import Variant


@dataclass(frozen=True, slots=True)
class _Request:
    """The options of the command."""

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
    out: Annotated[Path, typer.Option(help="Folder to write; replaced if this command wrote it before.")],
    device: DeviceOption = "auto",
    precision: Annotated[
        Precision, typer.Option(help="`auto` takes the fastest that this machine runs and that passes its gate.")
    ] = "auto",
    gold: GoldOption = None,
    limit_points: LimitOption = DEFAULT_LIMIT_POINTS,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.")] = None,
) -> None:
    """Make a self-contained folder of a model: files, graph, gate report, digests. A worker runs it by its path."""
    console, gold_set = remark_console(), read_gold(gold or DEFAULT_GOLD)
    request = _Request(precision, resolve_device(device), parse_device(device).index, gold_set, limit_points)
    found = fetched(source, revision)
    original = open_model(source if source == EMBEDDED else found.folder)
    ArticleTokenizer(original)  # refuses an unusable tokenizer before anything is copied, even if no gate will run
    if out.resolve() == original.folder.resolve():
        message = f"{out} is the source itself: choose another --out"
        raise ModelError(message)
    with replacing(out.absolute()) as folder:
        copied(original, folder, lambda path: console.print(f"copying {path.name}"))
        variant = _proven(open_model(folder), request, folder / GRAPHS_FOLDER, console)
        write_manifest(folder, _manifest(source, found.revision, original.digest, request, variant, folder))
    console.print(f"{out}: {variant.name} on {request.device}. To run it: ENRICHER_MODEL__SOURCE={out.absolute()}")


def _proven(checkpoint: Checkpoint, request: _Request, graphs: Path, console: Console) -> Variant:
    """The variant that a worker will take, with its graph built; checks what has no report. Raises ModelError."""
    for variant in _candidates(checkpoint, request):
        if obstacle_to(checkpoint, request.device, variant, None) is None:
            break
        report = check_variant(
            checkpoint,
            variant,
            request.device,
            gold=request.gold,
            limit_points=request.limit_points,
            cache_dir=graphs,
            keep_in=checkpoint.folder,
            device_id=request.device_id,
        ).report
        remark_table(verdicts_table([report]))
        for line in reasons_of(report):
            console.print(line)
        if report.passed:
            break
    chosen = choose(checkpoint, request.device, request.precision).variant
    console.print(f"building the graph of {chosen.name}")
    kept = prepare_variant(checkpoint, chosen, request.device, cache_dir=graphs).onnx_path.parent
    for other in graphs.iterdir():
        if other != kept:  # the gate built the graph of fp32 too, which the folder need not carry
            shutil.rmtree(other)
    return chosen


def _candidates(checkpoint: Checkpoint, request: _Request) -> Sequence[Variant]:
    """The variants to try, fastest first; what this machine cannot run it cannot check either."""
    named = request.precision != "auto"
    asked = [named_variant(checkpoint, request.device, request.precision)] if named else variants_for(request.device)
    return [variant for variant in asked if problem_of(checkpoint, variant) is None]


def _manifest(
    source: str, revision: str | None, digest: str, request: _Request, variant: Variant, folder: Path
) -> Manifest:
    return Manifest(
        source=source,
        revision=revision,
        model_digest=digest,
        device=request.device,
        variant=variant.name,
        precision=variant.precision,
        enricher=version("enricher"),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        files=entries_of(folder),
    )
