"""Writes one ONNX graph: nodes in memory, weights into a second file at once, so that only one weight is held at a time.

Knows nothing about encoders. Weights are outside the model file because protobuf is limited to 2 GB, and because ONNX
Runtime can then map them instead of reading them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

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
        return output

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
