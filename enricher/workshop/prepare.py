"""`enricher model prepare`: turns any checkpoint into a self-contained folder that a worker runs.

The folder includes the gate's reports, and for int8 the recipe of its calibration. For a hub id it downloads only
safetensors, configuration and tokenizer files into the hub client's cache: nothing that runs code when it is opened, no
pickle, no Python file. Offline, the client's cache is enough.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from enricher.distribution import installed_version
from enricher.errors import ModelError, SettingsError
from enricher.worker.commands.console import remark_console, remark_table
from enricher.worker.heads import KINDS
from enricher.worker.inference.checkpoint.folder import SHARD_INDEX, SINGLE_FILE, TOKENIZER_FILES, Checkpoint
from enricher.worker.inference.checkpoint.onnx_model import has_weights
from enricher.worker.inference.device.hardware import resolve_device
from enricher.worker.inference.device.sessions import Device
from enricher.worker.inference.graph.graph_files import GRAPHS_FOLDER
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.advice import measured_languages
from enricher.worker.inference.run.model import EMBEDDED, open_model, prepare_variant
from enricher.worker.inference.run.selection import (
    choose,
    missed_target,
    named_variant,
    obstacle_to,
    problem_of,
    recipe_for,
    recipe_problem,
    variants_for,
    why_not_reduced,
)
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.runtime.devices import Precision, parse_device
from enricher.workshop.arguments import DeviceOption, GoldOption, LimitOption
from enricher.workshop.calibration import (
    CalibratedOnGold,
    Texts,
    make_recipe,
    read_texts,
    refuse_calibration_texts,
    windows_of,
)
from enricher.workshop.check import check_variant, reasons_of, verdicts_table
from enricher.workshop.gate.gold import GoldSet
from enricher.workshop.gate.quality_gate import gold_for
from enricher.workshop.gate.verdict import DEFAULT_LIMIT_POINTS
from enricher.workshop.prepared_folder import Manifest, copy_files, replacement_of, write_manifest


@dataclass(frozen=True, slots=True)
class _Request:
    """The options of the command."""

    precision: Precision
    device: Device
    device_id: int
    gold: GoldSet
    limit_points: float
    calibrate: Path | None


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
    calibrate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Articles to calibrate int8 on, JSON lines as `enrich` reads them. Default: English news.",
        ),
    ] = None,
) -> None:
    """Make a self-contained folder of a model: files, graph, gate report, digests. A worker runs it by its path.

    The head of SOURCE may be of any kind. Only models for entities have int8.

    If the machine runs int8, `auto` and `int8` calibrate it, unless SOURCE has a valid int8.json and --calibrate asks for no
    other. That takes seconds to minutes. If int8 then fails its gate, `auto` takes the next precision, and `int8` ends with
    exit code 3 and writes nothing. `auto` does not take an int8 whose calibration missed its target.
    """
    console, device_id = remark_console(), parse_device(device).index
    found = fetch(source, revision)
    original = open_model(source if source == EMBEDDED else found.folder)
    gold_set = gold_for(original.head, gold, measured_languages(original.folder))
    request = _Request(precision, resolve_device(device), device_id, gold_set, limit_points, calibrate)
    ArticleTokenizer(original)  # refuses an unusable tokenizer before anything is copied, even if no gate will run
    if out.resolve() == original.folder.resolve():
        message = f"{out} is the source itself: choose another --out"
        raise ModelError(message)
    texts = _texts(original, request, console)
    windows = [] if texts is None else windows_of(original, texts)
    with replacement_of(out.absolute()) as folder:
        copy_files(original, folder, lambda path: console.print(f"copying {path.name}"))
        checkpoint = open_model(folder)
        if texts is not None:
            make_recipe(checkpoint, texts, windows, scratch=folder.parent)
        variant = _choose_variant(checkpoint, request, folder / GRAPHS_FOLDER, console)
        write_manifest(folder, _manifest(source, found.revision, original.digest, request, variant))
    path = out.absolute()
    needs_task = not KINDS[original.head.kind].serves_alone
    setting = f'source = "{path}"' if needs_task else f"ENRICHER_MODEL__SOURCE={quote(str(path))}"
    where = "in [tasks.NAME]: " if needs_task else ""
    console.print(f"{out}: {variant.name} on {request.device}. To run it: {where}{setting}", markup=False)


def _texts(checkpoint: Checkpoint, request: _Request, console: Console) -> Texts | None:
    """The texts to calibrate on; None if nothing must be calibrated. Raises SettingsError, ModelError, FatalError."""
    for named in variants_for(request.device):
        if named.precision == request.precision and (problem := why_not_reduced([checkpoint], named)):
            raise ModelError(f"precision {request.precision} is refused: {problem}. Choose another --precision.")
    asked = request.calibrate is not None
    variant = next((each for each in _candidates(checkpoint, request) if each.quantised), None)
    if variant is None:
        if asked:
            raise _no_int8(checkpoint, request)
        return None
    if not asked and recipe_problem(checkpoint, variant) is None:
        if request.precision != "auto" and (shared := _calibrated_on(checkpoint, variant, request.gold)):
            raise shared
        return None
    texts = read_texts(request.calibrate, request.gold)
    if request.calibrate is None:
        console.print(
            f"calibrating int8 on the sample articles ({texts.file.number} of English news). For another language or "
            f"domain, give some tens of your own with --calibrate FILE; to skip it, choose another --precision."
        )
    return texts


def _calibrated_on(checkpoint: Checkpoint, variant: Variant, gold: GoldSet) -> CalibratedOnGold | None:
    """The error that stops the gate of a quantised variant, before anything is copied or run."""
    recipe = recipe_for(checkpoint, variant)
    try:
        if recipe is not None:
            refuse_calibration_texts(recipe, gold)
    except CalibratedOnGold as error:
        return error
    return None


def _no_int8(checkpoint: Checkpoint, request: _Request) -> SettingsError | ModelError:
    """The error if --calibrate is given, but no int8 can be calibrated."""
    if request.precision not in {"auto", "int8"}:
        return SettingsError(f"--calibrate is for int8, and --precision is {request.precision}")
    quantised = [each for each in variants_for(request.device) if each.quantised]
    reasons = [why_not_reduced([checkpoint], each) or problem_of(checkpoint, each) for each in quantised]
    why = reasons[0] if reasons else f"there is no int8 on {request.device}"
    return ModelError(f"int8 cannot be calibrated here, because its gate cannot run: {why}. Leave out --calibrate.")


def _choose_variant(checkpoint: Checkpoint, request: _Request, graphs: Path, console: Console) -> Variant:
    """The variant that a worker will take. Builds its graph, and checks variants without a report. Raises ModelError."""
    for variant in _candidates(checkpoint, request):
        if request.precision == "auto" and (missed := missed_target(checkpoint, variant)):
            console.print(f"not {variant.name}: {missed}")
            continue
        if obstacle_to(checkpoint, request.device, variant, None) is None:
            break
        if request.precision == "auto" and (shared := _calibrated_on(checkpoint, variant, request.gold)):
            console.print(escape(f"not {variant.name}: {shared}"))
            continue
        report = check_variant(
            checkpoint,
            variant,
            request.device,
            gold=request.gold,
            limit_points=request.limit_points,
            cache_dir=graphs,
            report_folder=checkpoint.folder,
            device_id=request.device_id,
        ).report
        remark_table(verdicts_table([report]))
        for line in reasons_of(report):
            console.print(line)
        if report.passed:
            break
    chosen = choose([checkpoint], request.device, request.precision).variant
    console.print(f"building the graph of {chosen.name}")
    kept = prepare_variant(checkpoint, chosen, request.device, cache_dir=graphs).onnx_path.parent
    for other in graphs.iterdir():
        if other != kept:  # the gate built the graph of fp32 too, which the folder does not need
            shutil.rmtree(other)
    return chosen


def _candidates(checkpoint: Checkpoint, request: _Request) -> Sequence[Variant]:
    """The variants to try, fastest first, without those that this machine cannot run and so cannot check."""
    named = request.precision != "auto"
    asked = [named_variant(checkpoint, request.device, request.precision)] if named else variants_for(request.device)
    return [each for each in asked if (why_not_reduced([checkpoint], each) or problem_of(checkpoint, each)) is None]


def _manifest(source: str, revision: str | None, digest: str, request: _Request, variant: Variant) -> Manifest:
    return Manifest(
        source=source,
        revision=revision,
        model_digest=digest,
        device=request.device,
        variant=variant.name,
        precision=variant.precision,
        enricher=installed_version(),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
ALLOWED = (
    "config.json",
    SINGLE_FILE,
    "model-*-of-*.safetensors",
    SHARD_INDEX,
    *TOKENIZER_FILES,
    "modules.json",  # these four describe sentence embeddings
    "*_Pooling/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "enricher.json",
    "README.md",
    "LICENSE*",
)
"""The files that are downloaded: those that inference/checkpoint and inference/tokenizer read, and the licence."""
EXPORT = ("model.onnx*", "onnx/model.onnx*")
"""The files of an export in float32, which is downloaded if no graph can be built from the weights."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder with a model, and its commit if it came from the hub."""

    folder: Path
    revision: str | None = None


def fetch(source: str, revision: str | None) -> ModelFolder:
    """The folder `source`, or for a hub id the hub's copy of it. Blocks for a download. Raises ModelError."""
    if Path(source).exists() or not _HUB_ID.fullmatch(source):
        return ModelFolder(Path(source))
    from huggingface_hub import snapshot_download  # noqa: PLC0415  an HTTP client, which a folder does not need

    try:
        folder = Path(snapshot_download(source, revision=revision, allow_patterns=list(ALLOWED)))
        if not has_weights(folder):
            snapshot_download(source, revision=folder.name, allow_patterns=list(EXPORT))
    except ModelError:
        raise
    except Exception as error:  # errors of the hub's client, its HTTP client and the system share no base class
        message = (
            f"{source} is not a folder here and cannot be fetched from the hub: {_first_line(error)}. Without a network, "
            f"name a folder (`hf download {source} --local-dir FOLDER` makes one on another machine), or copy the hub's "
            f"cache."
        )
        raise ModelError(message) from error
    # The client's cache keeps one folder per commit, named after it.
    return ModelFolder(folder, revision=folder.name)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no reason given'}"
