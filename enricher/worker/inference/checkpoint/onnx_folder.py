"""A folder whose model is ONNX already: its labels, limits and digest, like those of a checkpoint.

Only reads. graph/external.py checks and wraps the graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import onnx

from enricher.errors import ModelError
from enricher.worker.heads import EntityHead
from enricher.worker.heads.labels import label_names
from enricher.worker.inference.checkpoint.configuration import EncoderConfig, read_config
from enricher.worker.inference.checkpoint.families import FAMILIES
from enricher.worker.inference.checkpoint.folder import SHARD_INDEX, SINGLE_FILE, Checkpoint, digest_of
from enricher.worker.rules.windowing import LENGTH_STEP_TOKENS

ONNX_FILES = ("model.onnx", "onnx/model.onnx")
DEFAULT_POSITIONS = 512
"""The positions if config.json gives no number: the fewest that common encoders have."""
_NUMBERS = ("max_position_embeddings", "vocab_size", "pad_token_id")
"""The numbers of config.json that the engine and the tokenizer use; None if absent."""


@dataclass(frozen=True, slots=True)
class OnnxModel(Checkpoint):
    """An opened folder with an ONNX model. `config` holds only the values that were found; `weight` cannot be used."""

    onnx_path: Path = field(kw_only=True)

    @property
    def max_window_tokens(self) -> int:
        """config.json's limit, rounded down to the step to which variants round lengths up, so that none exceeds it."""
        return (self.config.max_position_embeddings - self.first_position) // LENGTH_STEP_TOKENS * LENGTH_STEP_TOKENS

    @classmethod
    def open(cls, folder: Path) -> OnnxModel:
        """Read and check a folder. Raises ModelError, which says what to do, if it cannot be used."""
        path = next(folder / name for name in ONNX_FILES if (folder / name).is_file())
        config = _config(folder)
        names = external_files(read_graph(path))
        if outside := [name for name in names if Path(name).is_absolute() or ".." in Path(name).parts]:
            raise ModelError(f"{path}: its weights must lie beside it, and {outside[0]} does not. Export it again.")
        weights = [path.parent / name for name in names]
        if missing := sorted(each.name for each in weights if not each.is_file()):
            raise ModelError(f"{path}: weights missing: {', '.join(missing)}. Copy the folder again, completely.")
        files = (folder / "config.json", path, *weights)
        head = EntityHead.spec_of(label_names(config.id2label))
        return cls(folder, config, head, files, digest_of(folder, files), onnx_path=path)


def holds_onnx(folder: Path) -> bool:
    """True for a folder with an ONNX model, unless it also has weights that we can build a graph from."""
    if not any((folder / name).is_file() for name in ONNX_FILES):
        return False
    if not ((folder / SINGLE_FILE).is_file() or (folder / SHARD_INDEX).is_file()):
        return True
    return read_config(folder).get("model_type") not in FAMILIES


def read_graph(path: Path) -> onnx.ModelProto:
    """The model without the weights that are in other files. Raises ModelError."""
    try:
        model: onnx.ModelProto = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # including protobuf's own classes
        raise ModelError(
            f"{path}: it cannot be read as ONNX: {error}. Copy it again, completely (from a clone: `git lfs pull`)."
        ) from error
    if not model.graph.output:
        raise ModelError(f"{path}: there is no graph in it. Copy it again, completely.")
    return model


def external_files(model: onnx.ModelProto) -> list[str]:
    """The files with weights of the model, relative to its folder."""
    entries = [entry for tensor in model.graph.initializer for entry in tensor.external_data]
    return sorted({entry.value for entry in entries if entry.key == "location"})


def _config(folder: Path) -> EncoderConfig:
    """The values that the tokenizer and the labels need; the rest is in the graph."""
    values = read_config(folder)
    known = {name: values[name] for name in EncoderConfig.model_fields if name in values}
    try:
        labels = {int(key): str(label) for key, label in dict(values.get("id2label") or {}).items()}
        numbers = {name: None if values.get(name) is None else int(values[name]) for name in _NUMBERS}
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"{folder / 'config.json'}: id2label must name a label for each number, and {', '.join(_NUMBERS)} are whole "
            f"numbers: {error}"
        ) from error
    return EncoderConfig.model_construct(
        **{
            "model_type": "onnx",
            "architectures": ("an ONNX model",),
            **known,
            **numbers,
            "max_position_embeddings": numbers["max_position_embeddings"] or DEFAULT_POSITIONS,
            "id2label": labels,
        }
    )
