"""Graphs on disk: the writer of one ONNX file with its weights, and the folders in which built graphs are found again.

The writer collects nodes in memory and writes weights into a second file at once, so that only one weight is held at a time.
Weights are outside the model file because protobuf is limited to 2 GB, and because ONNX Runtime can then map them instead of
reading them. There is one folder per graph, named after everything that determines the graph. A graph is written to a
temporary folder and renamed into place, so a graph that is found is complete, even if several processes build it at the same
time. Nothing here knows about encoders.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from enricher.errors import ModelError

OPSET = 18
MICROSOFT_OPSET = 1
IR_VERSION = 10
"""The version of ONNX 1.16, which every supported ONNX Runtime reads. `onnx` would write its newest version."""
MICROSOFT = "com.microsoft"
"""The domain of ONNX Runtime's fused operators (its ContribOperators.md)."""
ALIGNMENT_BYTES = 64 * 1024
"""Alignment of large tensors in the weights file: the coarsest that mapping requires (Windows)."""
SMALLEST_ALIGNED_BYTES = 1024 * 1024
"""Smaller tensors are read, not mapped, and are not aligned."""


class OnnxWriter:
    """Collects inputs, nodes and outputs; `weight` writes to `data` at once. Each node is named after its output."""

    def __init__(self, data: BinaryIO, data_name: str) -> None:
        self._data = data
        self._data_name = data_name
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._nodes: list[onnx.NodeProto] = []
        self._tensors: dict[str, TensorProto] = {}
        self._made: set[str] = set()

    def input(self, name: str, element_type: int, shape: Sequence[str | int]) -> str:
        """Declare an input; strings in `shape` are free dimensions."""
        self._inputs.append(helper.make_tensor_value_info(name, element_type, list(shape)))
        return name

    def output(self, name: str, element_type: int, shape: Sequence[str | int]) -> None:
        """Declare that an existing value is an output."""
        self._outputs.append(helper.make_tensor_value_info(name, element_type, list(shape)))

    def constant(self, name: str, value: npt.NDArray[Any]) -> str:
        """A small tensor in the model file, where shape inference sees it."""
        self._tensors.setdefault(name, numpy_helper.from_array(value, name))
        return name

    def weight(self, name: str, value: npt.NDArray[np.generic]) -> str:
        """Append a tensor, contiguous in memory, to the weights file."""
        assert name not in self._tensors, f"weight {name} is written once"
        self._tensors[name] = append_weight(self._data, self._data_name, name, value)
        return name

    def node(self, operator: str, inputs: Sequence[str], output: str, *, domain: str = "", **attributes: Any) -> str:  # noqa: ANN401  as onnx.helper takes them
        """Append a node with one output; returns the output's name."""
        node = helper.make_node(operator, list(inputs), [output], name=output, domain=domain, **attributes)
        self._nodes.append(node)
        self._made.add(output)
        return output

    def has(self, name: str) -> bool:
        """True if a node makes this value already."""
        return name in self._made

    def model(self, name: str, metadata: Mapping[str, str]) -> onnx.ModelProto:
        """The finished model, without its weights."""
        graph = helper.make_graph(self._nodes, name, self._inputs, self._outputs, list(self._tensors.values()))
        domains = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, MICROSOFT_OPSET)]
        model = helper.make_model(graph, opset_imports=domains, ir_version=IR_VERSION, producer_name="enricher")
        helper.set_model_props(model, dict(metadata))
        return model


def append_weight(data: BinaryIO, data_name: str, name: str, value: npt.NDArray[np.generic]) -> TensorProto:
    """Append a tensor, contiguous in memory, to the weights file `data`. Returns the reference for the model file."""
    if value.nbytes >= SMALLEST_ALIGNED_BYTES:
        data.write(bytes(-data.tell() % ALIGNMENT_BYTES))
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    tensor = TensorProto(name=name, dims=value.shape, data_type=kind, data_location=TensorProto.EXTERNAL)
    where = {"location": data_name, "offset": str(data.tell()), "length": str(value.nbytes)}
    for key, text in where.items():
        tensor.external_data.add(key=key, value=text)
    data.write(value.data)
    return tensor


MODEL_FILE = "model.onnx"
GRAPHS_FOLDER = "graphs"
"""The subfolder of a prepared model with the graphs that come with it."""
ASIDE = ".building-"
ABANDONED_AFTER_S = 3600.0
"""A build takes seconds, on a slow disk minutes: an older one belongs to a process that was killed."""

_log = logging.getLogger(__name__)


def cached_graph(cache_dir: Path, key: str, write: Callable[[Path], None], *, mode: int = 0o600) -> Path:
    """The path of the graph with that key. If it is missing, `write` writes it and its weights into a new folder.

    `mode` limits the permissions of files and folders that are made here. Raises ModelError if the disk refuses, and what
    `write` raises.
    """
    wanted = cache_dir / key
    if (wanted / MODEL_FILE).is_file():
        return wanted / MODEL_FILE
    try:
        cache_dir.mkdir(mode=_folder_mode(mode), parents=True, exist_ok=True)
        _sweep(cache_dir, before_s=time.time() - ABANDONED_AFTER_S)
        aside = Path(tempfile.mkdtemp(prefix=ASIDE, dir=cache_dir))
    except OSError as error:
        _log.warning("the model cache %s cannot be written (%s): the graph is built at every start", cache_dir, error)
        return _write(_temporary_folder(), write)
    try:
        _write(aside, write)
        _give_mode(aside, mode)
        return _move_into_place(aside, wanted)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _write(folder: Path, write: Callable[[Path], None]) -> Path:
    """Write and fsync, so that a rename cannot survive a crash without its data."""
    _log.info("building the graph")
    write(folder / MODEL_FILE)
    try:
        for path in (each for each in folder.iterdir() if each.is_file()):
            with path.open("rb+") as file:
                os.fsync(file.fileno())
    except OSError as error:
        raise ModelError(
            f"{folder}: the graph cannot be written: {error}. Free some space, or choose another cache."
        ) from error
    return folder / MODEL_FILE


def _give_mode(folder: Path, mode: int) -> None:
    """Let everybody who may read the model read the graph. A temporary folder is private; a pod may run as another user."""
    for path in folder.iterdir():
        path.chmod(path.stat().st_mode & mode)
    folder.chmod(_folder_mode(mode))


def _folder_mode(mode: int) -> int:
    """The mode of a folder: everybody who may read its files can search it."""
    return 0o700 | (mode & 0o044) | (mode & 0o044) >> 2


def _move_into_place(aside: Path, wanted: Path) -> Path:
    """Rename the folder. If another process was faster, use its graph."""
    if not (wanted / MODEL_FILE).is_file():
        # Graphs are complete when they are moved here, so files of an incomplete one were deleted later, perhaps by age.
        shutil.rmtree(wanted, ignore_errors=True)
    try:
        aside.rename(wanted)
    except OSError as error:
        if not (wanted / MODEL_FILE).is_file():
            raise ModelError(f"{wanted}: the graph cannot be put into the cache: {error}") from error
    return wanted / MODEL_FILE


def _sweep(cache_dir: Path, *, before_s: float) -> None:
    """Remove the unfinished builds of killed processes: a crash loop must not fill the disk."""
    for folder in cache_dir.glob(f"{ASIDE}*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_mtime < before_s:
                shutil.rmtree(folder, ignore_errors=True)


def _temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="enricher-model-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
