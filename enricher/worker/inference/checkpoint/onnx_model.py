"""A folder with a model that is ONNX already: which file of it runs, what its head is, and whether its files fit together.

The kind of the head is decided as for weights, by config.json and by the files of sentence-transformers. Only graphs in
float32 are opened: a reduced precision serves only once the quality gate has compared it with float32, and a file that
is reduced already cannot be compared. Nothing is run or written here; `graph/external.py` wraps the graph.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto

from enricher.errors import ModelError
from enricher.worker.heads import KINDS, EntityHead, HeadSpec
from enricher.worker.inference.checkpoint.configuration import FAMILIES, head_files, read_config
from enricher.worker.inference.checkpoint.families import EncoderConfig
from enricher.worker.inference.checkpoint.folder import SHARD_INDEX, SINGLE_FILE, Checkpoint, digest_of
from enricher.worker.rules.windowing import LENGTH_STEP_TOKENS

SUFFIX = ".onnx"
USUAL_NAME = "model.onnx"
"""The name of the float32 graph in every exporter's folders. Files beside it are optimised, halved or quantised copies."""
DEFAULT_POSITIONS = 512
"""The positions if config.json gives no number: the fewest that common encoders have."""
_NUMBERS = ("max_position_embeddings", "vocab_size", "pad_token_id")
"""The numbers of config.json that the engine and the tokenizer use; None if absent."""
_INTEGER_OPERATORS = re.compile(r"Quantize|Integer|NBits|Bnb4|^Q[A-Z]")
"""Names of the operators of quantised graphs, of ONNX and of ONNX Runtime: MatMulInteger, QAttention, MatMulNBits, ..."""
_HALVES = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})


@dataclass(frozen=True, slots=True)
class OnnxModel(Checkpoint):
    """An opened folder with an ONNX model. `config` holds only the values that were found; `weight` cannot be used."""

    onnx_path: Path = field(kw_only=True)
    is_named: bool = field(default=False, kw_only=True)
    """True if the source named the file, instead of the folder alone."""

    @property
    def source(self) -> Path:
        """The file if it was named, else the folder."""
        return self.onnx_path if self.is_named else self.folder

    @property
    def max_window_tokens(self) -> int:
        """config.json's limit, rounded down to the step to which variants round lengths up, so that none exceeds it."""
        return (self.config.max_position_embeddings - self.first_position) // LENGTH_STEP_TOKENS * LENGTH_STEP_TOKENS

    @property
    def choice(self) -> str:
        """The file that runs, and the others of the folder, which do not, for logs and `model inspect`."""
        names = [each.relative_to(self.folder).as_posix() for each in onnx_files(self.folder)]
        taken = self.onnx_path.relative_to(self.folder).as_posix()
        others = [name for name in names if name != taken]
        return f"{taken}, not {', '.join(others)}" if others else taken

    @classmethod
    def open(cls, folder: Path, named: Path | None = None) -> OnnxModel:
        """Read and check a folder, or the file `named` in it. Raises ModelError, which says what to do."""
        values = read_config(folder)
        config = _config(folder, values)
        path = named or _only_file(folder)
        model = read_graph(path)
        weights = _weights_beside(path, model)
        _refuse_reduced(path, model)
        head, described_in = _read_head(folder, values)
        files = (folder / "config.json", path, *weights, *(folder / name for name in described_in))
        config = config.model_copy(update={"vocab_size": _vocabulary(path, model, config.vocab_size)})
        return cls(folder, config, head, files, digest_of(folder, files), onnx_path=path, is_named=named is not None)


def onnx_files(folder: Path) -> list[Path]:
    """The ONNX files of a folder, where exporters put them: beside config.json and in `onnx`."""
    return sorted(path for pattern in ("*.onnx", "onnx/*.onnx") for path in folder.glob(pattern) if path.is_file())


def holds_onnx(folder: Path) -> bool:
    """True for a folder with an ONNX model, unless it also has weights that we can build a graph from."""
    return bool(onnx_files(folder)) and not has_weights(folder)


def has_weights(folder: Path) -> bool:
    """True for a folder with weights that we can build a graph from. Raises ModelError."""
    if not ((folder / SINGLE_FILE).is_file() or (folder / SHARD_INDEX).is_file()):
        return False
    return read_config(folder).get("model_type") in FAMILIES


def folder_of(named: Path) -> Path:
    """The model's folder for an ONNX file that a source names: where its config.json is. Raises ModelError."""
    folder = next((each for each in (named.parent, named.parent.parent) if (each / "config.json").is_file()), None)
    if folder is None:
        raise ModelError(f"{named}: no config.json beside it or in the folder above. Copy the folder, completely.")
    if not named.is_file():
        there = ", ".join(str(each.relative_to(folder)) for each in onnx_files(folder))
        raise ModelError(f"{named}: no such file. ONNX files in {folder}: {there or 'none'}.")
    return folder


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


def tensors_of(model: onnx.ModelProto) -> Iterator[TensorProto]:
    """All tensors of a model, those in attributes, inner graphs and functions too."""
    yield from _tensors_of_graph(model.graph)
    for function in model.functions:
        yield from _tensors_of_nodes(function.node)


def _tensors_of_graph(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _tensors_of_nodes(graph.node)


def _tensors_of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _tensors_of_graph(graph)


def external_files(model: onnx.ModelProto) -> list[str]:
    """The files with weights of the model, relative to its folder."""
    entries = [entry for tensor in tensors_of(model) for entry in tensor.external_data]
    return sorted({entry.value for entry in entries if entry.key == "location"})


def _only_file(folder: Path) -> Path:
    """The file of a folder that runs: the one with the usual name, else the only one. Raises ModelError."""
    found = onnx_files(folder)
    usual = [path for path in found if path.name == USUAL_NAME]
    candidates = usual or found
    if len(candidates) == 1:
        return candidates[0]
    listed = ", ".join(path.relative_to(folder).as_posix() for path in candidates)
    raise ModelError(
        f"{folder}: {len(candidates)} ONNX files, and nothing says which one to run: {listed}. Name it as the source: "
        f"{candidates[0]}"
    )


def _weights_beside(path: Path, model: onnx.ModelProto) -> list[Path]:
    """The files with its weights. Raises ModelError if one is missing, too short, or outside of its folder."""
    names = external_files(model)
    if outside := [name for name in names if Path(name).is_absolute() or ".." in Path(name).parts]:
        raise ModelError(f"{path}: its weights must lie beside it, and {outside[0]} does not. Export it again.")
    weights = [path.parent / name for name in names]
    if missing := sorted(each.name for each in weights if not each.is_file()):
        raise ModelError(f"{path}: weights missing: {', '.join(missing)}. Copy the folder again, completely.")
    for name, end in _ends(model).items():
        if (size := (path.parent / name).stat().st_size) < end:
            raise ModelError(
                f"{path}: its weights end at byte {end} of {name}, which has {size}. Copy the folder again, completely "
                f"(from a clone: `git lfs pull`)."
            )
    return weights


def _ends(model: onnx.ModelProto) -> dict[str, int]:
    """The byte up to which each file with weights must reach."""
    ends: dict[str, int] = {}
    for tensor in tensors_of(model):
        where = {entry.key: entry.value for entry in tensor.external_data}
        numbers = [where.get(key, "0") for key in ("offset", "length")]
        if "location" in where and all(map(str.isdecimal, numbers)):  # others fail when the model is opened
            ends[where["location"]] = max(ends.get(where["location"], 0), sum(map(int, numbers)))
    return ends


def _refuse_reduced(path: Path, model: onnx.ModelProto) -> None:
    """Raise ModelError for a graph that does not compute in float32."""
    operators = (node.op_type for nodes in (model.graph, *model.functions) for node in nodes.node)
    quantised = next(filter(_INTEGER_OPERATORS.search, operators), None)
    sizes = {True: 0, False: 0}
    for tensor in tensors_of(model):
        if tensor.data_type in _HALVES or tensor.data_type == TensorProto.FLOAT:
            sizes[tensor.data_type in _HALVES] += math.prod(tensor.dims)
    if quantised or sizes[True] > sizes[False]:
        what = f"is quantised ({quantised})" if quantised else "has its weights in half precision"
        raise ModelError(
            f"{path}: this export {what}, and a reduced precision serves only once the quality gate has compared it with "
            f"fp32. Take the export in fp32, usually onnx/{USUAL_NAME}: fp16 for CUDA is made of it."
        )


def _read_head(folder: Path, values: dict[str, Any]) -> tuple[HeadSpec, tuple[str, ...]]:
    """The head, and the names of the files that describe it. Without a named architecture it is token classification."""
    names = values.get("architectures")
    architecture = str(names[0]) if isinstance(names, list) and names else ""
    files = head_files(folder, architecture, values)
    for kind in reversed(KINDS.values()):
        if kind.recognises(files):
            return kind.read_spec(files)
    if not architecture:
        return EntityHead.read_spec(files)
    raise ModelError(
        f"{folder}: config.json says {architecture}, which has no head for tokens or sequences, and there is no "
        f"modules.json of sentence-transformers. For vectors, copy modules.json and 1_Pooling from the model that was "
        f"exported; for entities or classes, write the architecture that was exported into config.json."
    )


def _vocabulary(path: Path, model: onnx.ModelProto, configured: int | None) -> int | None:
    """The number of embeddings, with which the tokenizer is compared. Raises ModelError if config.json names more."""
    rows = _embeddings(model.graph)
    if rows is None:
        return configured
    if configured is not None and configured > rows:
        raise ModelError(
            f"{path}: it has {rows} embeddings, and config.json says {configured} tokens (vocab_size): they do not belong "
            f"together. Copy the folder again, completely."
        )
    return configured or rows


def _embeddings(graph: onnx.GraphProto) -> int | None:
    """The rows of the table that `input_ids` are looked up in; None if it is not found, as in a shared or computed table."""
    ids = {"input_ids"}
    ids |= {node.output[0] for node in graph.node if node.op_type == "Cast" and node.input[0] in ids}
    tables = {node.input[0] for node in graph.node if node.op_type == "Gather" and node.input[1] in ids}
    return next((tensor.dims[0] for tensor in graph.initializer if tensor.name in tables and tensor.dims), None)


def _config(folder: Path, values: dict[str, Any]) -> EncoderConfig:
    """The values that the tokenizer and the labels need; the rest is in the graph."""
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
