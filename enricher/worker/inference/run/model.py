"""A model's folder -> a graph on disk for one device, built once and then found in the cache.

The graph is built from a checkpoint's weights, or wraps an ONNX file of another exporter (graph/external.py).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import (
    Checkpoint,
    refuse_outside_links,
    refuse_unreadable,
    shared_mode,
)
from enricher.worker.inference.checkpoint.onnx_model import SUFFIX, OnnxModel, folder_of, holds_onnx
from enricher.worker.inference.device.hardware import resolve_device
from enricher.worker.inference.device.sessions import PROVIDERS, Device, Session, open_session
from enricher.worker.inference.graph import external
from enricher.worker.inference.graph.builder import BUILDER_VERSION, build
from enricher.worker.inference.graph.graph_files import GRAPHS_FOLDER, MODEL_FILE, OnnxWriter, cached_graph
from enricher.worker.inference.graph.int8 import Recipe, quantise
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.selection import (
    check_command,
    choose,
    lost_without_report,
    missing_reports,
    permanent_obstacle,
    recipe_for,
)
from enricher.worker.records import ModelCard
from enricher.worker.runtime.devices import Precision, parse_device

EMBEDDED = "newswire-e5"
"""The model that is built in."""
EMBEDDED_FOLDER = Path(__file__).parents[3] / "models" / EMBEDDED
WEIGHTS_FILE = "model.weights"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A graph on disk, its origin, and the device that it runs on."""

    onnx_path: Path
    checkpoint: Checkpoint
    """The checkpoint that gives the encoder and the first head."""
    card: ModelCard
    device: Device
    variant: Variant
    reason: str = field(default="asked for", compare=False)
    """Why this variant was chosen (selection.py)."""
    rejected: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    """Faster variants that are not used, each with the reason."""
    device_id: int = 0
    """The number of the GPU if `device` is `cuda`."""
    recipe_digest: str | None = None
    """The digest of the int8 recipe, if the variant is quantised."""
    others: tuple[Checkpoint, ...] = ()
    """The other checkpoints whose heads are in the graph, after the first one's."""

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """A checkpoint for each head, in the order of the graph's outputs."""
        return (self.checkpoint, *self.others)

    @property
    def cards(self) -> tuple[ModelCard, ...]:
        """A card for each head."""
        precision = self.card.precision
        return (self.card, *(ModelCard(each.name, each.digest, precision) for each in self.others))

    @property
    def provider(self) -> str:
        """The runtime: one of ONNX Runtime's execution providers, or OpenVINO."""
        return PROVIDERS[self.variant.runtime]

    def open_session(self, *, threads_per_run: int, concurrency: int) -> Session:
        """Open the graph on its device. Raises ModelError."""
        session = open_session(
            self.onnx_path,
            self.variant.runtime,
            threads_per_run=threads_per_run,
            concurrency=concurrency,
            device_id=self.device_id,
            # Exported graphs may have nodes that CUDA lacks; ours have none.
            cpu_nodes=isinstance(self.checkpoint, OnnxModel),
        )
        if isinstance(self.checkpoint, OnnxModel):
            external.require_answers(session, self.checkpoint, exact=not self.variant.reduced)
        return session


def open_model(source: str | Path | None) -> Checkpoint:
    """Open a folder with a checkpoint or an ONNX model, or an ONNX file in one; None or EMBEDDED is the built-in model.

    Raises ModelError.
    """
    named = folder = EMBEDDED_FOLDER if source in {None, EMBEDDED} else Path(str(source))
    if of_file := folder.suffix == SUFFIX and not folder.is_dir():
        folder = folder_of(named)
    try:
        if (folder / "config.json").is_file():  # any other folder is refused below, and may be too large to walk
            refuse_outside_links(folder)
            refuse_unreadable(folder)
        if of_file:
            return OnnxModel.open(folder, named)
        return OnnxModel.open(folder) if holds_onnx(folder) else Checkpoint.open(folder)
    except OSError as error:
        raise ModelError(f"{folder}: a file of the model cannot be read: {error}") from error


def prepare(
    source: str | Path | None,
    *,
    device: str,
    precision: Precision,
    cache_dir: Path,
) -> PreparedModel:
    """Open a model, choose its variant and build its graph unless `cache_dir` has it. `device` is a name in the settings.

    Building takes about a second for a small model; the disk limits a large one. Raises ModelError, which says what to do.
    """
    return prepare_heads([open_model(source)], device=device, precision=precision, cache_dir=cache_dir)


def prepare_heads(
    checkpoints: Sequence[Checkpoint],
    *,
    device: str,
    precision: Precision,
    cache_dir: Path,
) -> PreparedModel:
    """Like `prepare`, for checkpoints with the same encoder: one graph with the heads of all of them."""
    chosen = resolve_device(device)
    choice = choose(checkpoints, chosen, precision, cache_dir=cache_dir)
    rejected = tuple((variant.name, why) for variant, why in choice.rejected)
    missing = missing_reports(checkpoints, chosen, cache_dir)
    unproven: list[str] = []
    for variant, why in choice.rejected:
        commands = {check_command(checkpoint, chosen, variant) for checkpoint in checkpoints}
        if commands.isdisjoint(missing) or choice.variant.reduced or permanent_obstacle(checkpoints, variant):
            _log.info("not %s: %s", variant.name, why)
        else:
            unproven.append(f"not {variant.name}: {why}")
    if unproven:
        # One warning if fp32 serves only because reports or recipes are missing, which the operator can make.
        _log.warning("%s. %s", "; ".join(unproven), lost_without_report(chosen))
    first, *others = checkpoints
    if isinstance(first, OnnxModel):
        _log.info("%s: the graph is %s", first.folder, first.choice)
    prepared = prepare_variant(first, choice.variant, chosen, cache_dir=cache_dir, others=others)
    return replace(prepared, reason=choice.reason, rejected=rejected, device_id=parse_device(device).index)


def prepare_variant(
    checkpoint: Checkpoint,
    variant: Variant,
    device: Device,
    *,
    cache_dir: Path,
    device_id: int = 0,
    others: Sequence[Checkpoint] = (),
) -> PreparedModel:
    """The graph of `checkpoint` in `variant`, with the heads of `others`, even if no gate report allows it to serve.

    Raises ModelError, also if the variant is quantised and the model has no valid recipe.
    """
    if others and (onnx := [each.folder for each in (checkpoint, *others) if isinstance(each, OnnxModel)]):
        raise ModelError(f"{onnx[0]}: a model that is ONNX already runs by itself, without other heads")
    if isinstance(checkpoint, OnnxModel):
        variant = external.padded_variant(variant)
    recipe = recipe_for(checkpoint, variant)
    card = ModelCard(name=checkpoint.name, digest=checkpoint.digest, precision=variant.precision)
    made_by = BUILDER_VERSION if recipe is None else f"{BUILDER_VERSION}.{recipe.digest[:16]}"
    key = f"{_joined_digest((checkpoint, *others))[:32]}-{variant.name}-{made_by}"
    shipped = checkpoint.folder / GRAPHS_FOLDER / key / MODEL_FILE
    path = shipped if shipped.is_file() else _build_in_cache(cache_dir, key, (checkpoint, *others), variant, recipe)
    return PreparedModel(
        path,
        checkpoint,
        card,
        device,
        variant,
        device_id=device_id,
        recipe_digest=None if recipe is None else recipe.digest,
        others=tuple(others),
    )


def _joined_digest(checkpoints: Sequence[Checkpoint]) -> str:
    """The digest of one checkpoint, or one digest over those of several, in order."""
    digests = [each.digest for each in checkpoints]
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _build_in_cache(
    cache_dir: Path, key: str, checkpoints: Sequence[Checkpoint], variant: Variant, recipe: Recipe | None
) -> Path:
    mode = 0o777
    for checkpoint in checkpoints:
        try:
            mode &= shared_mode(checkpoint.files)
        except OSError as error:
            raise ModelError(f"{checkpoint.folder}: a file of the model cannot be read: {error}") from error
    return cached_graph(cache_dir, key, partial(_write_graph, checkpoints, variant, recipe), mode=mode)


def _write_graph(checkpoints: Sequence[Checkpoint], variant: Variant, recipe: Recipe | None, path: Path) -> None:
    """Write the graph to `path` and its weights beside it."""
    checkpoint = checkpoints[0]
    try:
        if isinstance(checkpoint, OnnxModel):
            external.write(checkpoint, variant, path)
        else:
            with (path.parent / WEIGHTS_FILE).open("wb") as weights:
                model = build(checkpoints, variant, OnnxWriter(weights, WEIGHTS_FILE))
            path.write_bytes(model.SerializeToString())
        if recipe is not None:
            quantise(path.parent, recipe)
    except OSError as error:
        raise ModelError(
            f"{path.parent}: the graph cannot be written: {error}. Free some space, or choose another cache."
        ) from error
