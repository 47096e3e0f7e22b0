"""Models that are ONNX already, from any exporter: run unchanged and padded, with nodes that adapt inputs and outputs.

The folder has `model.onnx` (or `onnx/model.onnx`), config.json and a tokenizer, and no weights that we build a graph from.
Its graph takes `input_ids`, `attention_mask` and perhaps `token_type_ids`, all `[batch, length]`, and returns logits. Nodes
before the graph compute these inputs from padded.py's `input_ids` and `lengths`, and nodes after it compute `labels` and
`scores`, so every padded variant can use it like one of our graphs. checkpoint/folder.py opens such a folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, compose, helper, numpy_helper

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import OnnxModel, external_files, read_graph
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.inference.graph.variants import Variant

INSIDE = "exported/"
"""The prefix of every name inside the exported graph, so that no name is equal to one of ours."""
_AXES_ARE_AN_INPUT = {"ReduceSum": 13, "ReduceMax": 18}
"""The opset from which the axes are an input; in earlier ones they are an attribute. The exporter chose the opset."""
OLDEST_OPSET = 11


def padded_variant(variant: Variant) -> Variant:
    """`variant`, or the padded one of the same precision. Raises ModelError if there is none."""
    if variant.quantised:
        raise ModelError(
            f"{variant.precision} is made from the weights of a checkpoint, and this model is ONNX already. Choose "
            f"precision auto, bf16 or fp32, or prepare the checkpoint that it was exported from"
        )
    if tuple(variant.token_dimensions) != PaddedFloat32.token_dimensions:
        raise ModelError(
            f"a model that is ONNX already runs padded, and {variant.name} is not. Choose precision auto or fp32, or the "
            f"checkpoint that it was exported from"
        )
    if variant.precision == "fp32":
        # Always by ONNX Runtime: float32 has no gate, and OpenVINO does not know every exporter's operators.
        return PaddedFloat32(runtime="cuda" if variant.runtime == "cuda" else "cpu")
    return variant


def write(checkpoint: OnnxModel, variant: Variant, path: Path) -> None:
    """Write the wrapped graph to `path` and its weights beside it. Raises ModelError if its inputs or outputs do not fit."""
    model = wrap(checkpoint)
    for number, name in enumerate(external_files(model)):
        shutil.copyfile(checkpoint.onnx_path.parent / name, path.parent / f"{number}.weights")
        _rename_external(model, name, f"{number}.weights")
    helper.set_model_props(model, {"digest": checkpoint.digest, "variant": variant.name})
    path.write_bytes(model.SerializeToString())


def wrap(checkpoint: OnnxModel) -> onnx.ModelProto:
    """The model with our inputs and outputs; its external weights stay where they are. Raises ModelError as `write` does."""
    model = compose.add_prefix(read_graph(checkpoint.onnx_path), INSIDE)
    _Wrapping(checkpoint, model).wrap()
    return model


class _Wrapping:
    """Adds nodes to one model. Except for the axes of sums, the operators are unchanged since opset 11."""

    def __init__(self, checkpoint: OnnxModel, model: onnx.ModelProto) -> None:
        self._checkpoint = checkpoint
        self._graph = model.graph
        self._opset = max(each.version for each in model.opset_import if each.domain in {"", "ai.onnx"})
        self._before: list[onnx.NodeProto] = []
        self._after: list[onnx.NodeProto] = []

    def wrap(self) -> None:
        """Add the nodes before and after the graph, and replace its inputs and outputs."""
        if self._opset < OLDEST_OPSET:
            raise self._refusal(f"its opset is {self._opset}; export it with {OLDEST_OPSET} or later")
        # Old exporters list the weights among the inputs, as defaults.
        weights = {each.name for each in self._graph.initializer}
        inner = {each.name.removeprefix(INSIDE): each for each in self._graph.input if each.name not in weights}
        self._add_inputs(inner)
        self._add_outputs()
        nodes = [*self._before, *self._graph.node, *self._after]
        del self._graph.node[:], self._graph.input[:], self._graph.output[:]
        self._graph.node.extend(nodes)
        self._graph.input.extend([_value("input_ids", TensorProto.INT32, 2), _value("lengths", TensorProto.INT32, 1)])
        dimensions = {
            "labels": (TensorProto.INT32, 2),
            "scores": (TensorProto.FLOAT, 2),
            "logits": (TensorProto.FLOAT, 3),
        }
        self._graph.output.extend(_value(name, *kind) for name, kind in dimensions.items())

    def _add_inputs(self, inner: dict[str, onnx.ValueInfoProto]) -> None:
        """Compute the exporter's inputs: ids in its type, a mask of `position < length`, type 0 for every token."""
        self._require_inputs(inner)
        node, before = self._node, self._before
        length = node(
            before, "Gather", [node(before, "Shape", ["input_ids"], "shape"), self._constant("one", 1)], "length"
        )
        steps = [self._constant("zero", 0), length, self._constant("one", 1)]
        column = node(before, "Reshape", ["lengths", self._constant("column", [-1, 1])], "lengths.column")
        wide = node(before, "Cast", [column], "lengths.int64", to=TensorProto.INT64)
        computed = {
            "input_ids": "input_ids",
            "attention_mask": node(before, "Less", [node(before, "Range", steps, "places"), wide], "mask"),
            "token_type_ids": node(before, "Sub", ["input_ids", "input_ids"], "types"),
        }
        for name, value in inner.items():
            before.append(
                helper.make_node("Cast", [computed[name]], [INSIDE + name], to=value.type.tensor_type.elem_type)
            )

    def _add_outputs(self) -> None:
        """The outputs of a single NER head, as in heads.py, which says why `logits - logits` is added."""
        node, after = self._node, self._after
        after.append(helper.make_node("Cast", [self._logits()], ["logits"], to=TensorProto.FLOAT))
        best = node(after, "ArgMax", ["logits"], "labels.int64", axis=-1, keepdims=0)
        after.append(helper.make_node("Cast", [best], ["labels"], to=TensorProto.INT32))
        below = node(after, "Sub", ["logits", self._reduce("ReduceMax", "logits", keepdims=1)], "below")
        finite = node(after, "Sub", ["logits", "logits"], "finite")
        powers = node(after, "Add", [node(after, "Exp", [below], "exp"), finite], "powers")
        after.append(helper.make_node("Reciprocal", [self._reduce("ReduceSum", powers, keepdims=0)], ["scores"]))

    def _require_inputs(self, inner: dict[str, onnx.ValueInfoProto]) -> None:
        known = {"input_ids", "attention_mask", "token_type_ids"}
        if not {"input_ids", "attention_mask"} <= set(inner) <= known:
            raise self._refusal(f"its inputs are {', '.join(inner)}; we feed input_ids, attention_mask, token_type_ids")
        for name, value in inner.items():
            fixed = [each.dim_value for each in value.type.tensor_type.shape.dim if each.HasField("dim_value")]
            if fixed:
                raise self._refusal(f"{name} has a fixed size ({fixed[0]}); export it with dynamic batch and length")

    def _logits(self) -> str:
        outputs = {each.name.removeprefix(INSIDE): each for each in self._graph.output}
        name = "logits" if "logits" in outputs else next(iter(outputs))
        if len(outputs) > 1 and name != "logits":
            raise self._refusal(f"its outputs are {', '.join(outputs)}; one of them must be called logits")
        dimensions = outputs[name].type.tensor_type.shape.dim
        if len(dimensions) not in {0, 3}:  # 0: unknown
            raise self._refusal(
                f"its {name} have {len(dimensions)} dimensions, not batch, length and labels: it does not classify tokens"
            )
        if dimensions and dimensions[-1].dim_value not in {0, len(self._checkpoint.labels)}:
            raise self._refusal(
                f"it gives {dimensions[-1].dim_value} values per token, and config.json names "
                f"{len(self._checkpoint.labels)} labels"
            )
        return INSIDE + name

    def _reduce(self, operator: str, value: str, *, keepdims: int) -> str:
        if self._opset < _AXES_ARE_AN_INPUT[operator]:
            return self._node(self._after, operator, [value], operator, axes=[-1], keepdims=keepdims)
        inputs = [value, self._constant("last_axis", [-1])]
        return self._node(self._after, operator, inputs, operator, keepdims=keepdims)

    def _constant(self, name: str, value: int | Sequence[int]) -> str:
        full = f"enricher/{name}"
        if all(each.name != full for each in self._graph.initializer):
            self._graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), full))
        return full

    @staticmethod
    def _node(
        nodes: list[onnx.NodeProto],
        operator: str,
        inputs: Sequence[str],
        name: str,
        **attributes: Any,  # noqa: ANN401  as onnx.helper takes them
    ) -> str:
        output = f"enricher/{name}"
        nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def _refusal(self, why: str) -> ModelError:
        return ModelError(f"{self._checkpoint.onnx_path}: we cannot run it: {why}.")


def _value(name: str, element_type: int, dimensions: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element_type, ["batch", "length", None][:dimensions])


def _rename_external(model: onnx.ModelProto, old: str, new: str) -> None:
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if (entry.key, entry.value) == ("location", old):
                entry.value = new
