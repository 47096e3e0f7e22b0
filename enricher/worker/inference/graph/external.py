"""Models that are ONNX already, from any exporter: padded, with nodes that adapt inputs and outputs.

The graph takes ids and a mask, and perhaps token types and positions, all `[batch, length]`. Nodes before it compute
these inputs from padded.py's `input_ids` and `lengths`. Its outputs are recognised by their names or by their shapes,
and nodes after it compute what a graph of builder.py with the same head gives. So every padded variant can use it like
such a graph. The graph itself is unchanged, or converted to float16.

checkpoint/onnx_model.py opens such a folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, compose, helper, numpy_helper
from onnx.external_data_helper import load_external_data_for_model
from onnx.inliner import inline_local_functions

from enricher.errors import ModelError
from enricher.worker.heads import KINDS, HeadSpec, Layers
from enricher.worker.inference.checkpoint.onnx_model import OnnxModel, external_files, read_graph, tensors_of
from enricher.worker.inference.device.sessions import SESSION_ERRORS, Session
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.records import Float32Array

INSIDE = "exported/"
"""The prefix of every name inside the exported graph, so that no name is equal to one of ours."""
_AXES_ARE_AN_INPUT = {"ReduceSum": 13, "ReduceMax": 18}
"""The opset from which the axes are an input; in earlier ones they are an attribute. The exporter chose the opset."""
OLDEST_OPSET = 11
_ROLES: Mapping[str, str] = {
    "input_ids": "ids",
    "attention_mask": "mask",
    "input_mask": "mask",
    "token_type_ids": "types",
    "segment_ids": "types",
    "position_ids": "positions",
}
"""Names of inputs in exporters of PyTorch and TensorFlow, and what each is."""
_OUTPUTS: Mapping[Layers, Sequence[tuple[tuple[str, ...], int]]] = {
    "labels": ((("logits",), 3),),
    "classifier": ((("logits",), 2),),
    "none": ((("last_hidden_state", "token_embeddings"), 3), (("sentence_embedding",), 2)),
}
"""The outputs that a head can read, in order of preference: usual names, and the number of dimensions. An output with
another name will do if no other one has this shape, except for `sentence_embedding`, which a pooler's output looks like."""
_NUMBERS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE})
_PROBE_TOKENS = (3, 8)
"""Lengths of the two windows that a session is tried with, alone and together."""
_PROBE_TOLERANCE = 1e-3
"""Largest difference between a window's answers in two batches in float32, as a share of the largest answer."""


def padded_variant(variant: Variant) -> Variant:
    """`variant`, or the padded one of the same precision. Raises ModelError if there is none."""
    if variant.quantised:
        raise ModelError(
            f"{variant.precision} is made from the weights of a checkpoint, and this model is ONNX already: quantised by "
            f"what is in a batch, its labels would depend on the other windows. Choose precision auto, bf16 or fp32, or "
            f"prepare the checkpoint that it was exported from"
        )
    if tuple(variant.token_dimensions) != PaddedFloat32.token_dimensions:
        raise ModelError(
            f"a model that is ONNX already runs padded, and {variant.name} is not. Choose another precision, or the "
            f"checkpoint that it was exported from"
        )
    if variant.precision == "fp32":
        # Always by ONNX Runtime: float32 has no gate, and OpenVINO does not know every exporter's operators.
        return PaddedFloat32(runtime="cuda" if variant.runtime == "cuda" else "cpu")
    return variant


def write(checkpoint: OnnxModel, variant: Variant, path: Path) -> None:
    """Write the wrapped graph to `path` and its weights beside it. Raises ModelError if its inputs or outputs do not fit."""
    half = variant.precision == "fp16"
    model = wrap(checkpoint, in_float16(checkpoint.onnx_path) if half else read_graph(checkpoint.onnx_path))
    for number, name in enumerate(external_files(model)):
        shutil.copyfile(checkpoint.onnx_path.parent / name, path.parent / f"{number}.weights")
        _rename_external(model, name, f"{number}.weights")
    helper.set_model_props(model, {"digest": checkpoint.digest, "variant": variant.name})
    onnx.save_model(model, path, save_as_external_data=half, location="0.weights")


def wrap(checkpoint: OnnxModel, model: onnx.ModelProto) -> onnx.ModelProto:
    """`model`, a graph of the checkpoint, with our inputs and outputs; external weights stay where they are.

    Raises ModelError as `write` does.
    """
    wrapped = compose.add_prefix(model, INSIDE)
    _Wrapping(checkpoint, wrapped).wrap()
    return wrapped


def require_answers(session: Session, checkpoint: OnnxModel, *, exact: bool) -> None:
    """Raise ModelError unless two windows have answers of the head's shape, alone and in one batch.

    Sizes that the exporter fixed inside of the graph, and outputs whose shape the file does not say, show only when it runs.
    `exact`: the session computes in float32, so that a window must have the same answers in both batches. They differ if the
    graph ignores its mask, or quantises by the values of the whole batch.
    """
    together = _answers(session, checkpoint, _PROBE_TOKENS)
    for row, length in enumerate(_PROBE_TOKENS):
        (alone,) = _answers(session, checkpoint, [length])
        beside = together[row, :length] if checkpoint.head.reads == "tokens" else together[row]
        difference = float(np.abs(alone - beside).max())
        if exact and not difference <= _PROBE_TOLERANCE * float(np.abs(alone).max()):
            raise ModelError(
                f"{checkpoint.onnx_path}: a window's answers change by {difference:.2g} beside a longer window. Does the "
                f"graph use its mask? Export it again, in float32, and without quantisation."
            )


def _answers(session: Session, checkpoint: OnnxModel, lengths: Sequence[int]) -> Float32Array:
    """Logits or vectors of windows of these lengths. Raises ModelError."""
    head, shape = checkpoint.head, (len(lengths), max(lengths))
    real = np.arange(shape[1]) < np.array(lengths)[:, None]
    ids = np.arange(shape[1], dtype=np.int32) % min(checkpoint.config.vocab_size or 8, 8)
    feeds = {"input_ids": np.where(real, ids, 0).astype(np.int32), "lengths": np.array(lengths, np.int32)}
    if head.reads == "mean":
        feeds["owned"] = (real / real.sum(axis=1, keepdims=True)).astype(np.float32)
    name, wanted = ("logits", shape) if head.reads == "tokens" else ("head.0.rows", shape[:1])
    try:
        (found,) = session.run([name], feeds)
    except SESSION_ERRORS as error:
        raise ModelError(
            f"{checkpoint.onnx_path}: it does not run a batch of {shape[0]} windows of {shape[1]} tokens: "
            f"{str(error)[:300]}. Export it with dynamic batch and length."
        ) from error
    if found.shape != (*wanted, head.dimensions):
        raise ModelError(
            f"{checkpoint.onnx_path}: for {shape[0]} windows of {shape[1]} tokens it gives numbers of shape {found.shape}, "
            f"not {(*wanted, head.dimensions)}: it is not the model of config.json."
        )
    answers: Float32Array = found
    return answers


class _Wrapping:
    """Adds nodes to one model. Except for the axes of sums, the operators are unchanged since opset 11."""

    def __init__(self, checkpoint: OnnxModel, model: onnx.ModelProto) -> None:
        self._checkpoint = checkpoint
        self._head = checkpoint.head
        self._graph = model.graph
        self._opset = max((each.version for each in model.opset_import if each.domain in {"", "ai.onnx"}), default=0)
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
        outputs = self._add_labels() if self._head.reads == "tokens" else self._add_rows()
        nodes = [*self._before, *self._graph.node, *self._after]
        del self._graph.node[:], self._graph.input[:], self._graph.output[:]
        self._graph.node.extend(nodes)
        self._graph.input.extend([_value("input_ids", TensorProto.INT32, 2), _value("lengths", TensorProto.INT32, 1)])
        if self._head.reads == "mean":
            self._graph.input.append(_value("owned", TensorProto.FLOAT, 2))
        self._graph.output.extend(outputs)

    def _add_inputs(self, inner: dict[str, onnx.ValueInfoProto]) -> None:
        """Compute the exporter's inputs in its types: a mask of `position < length`, type 0, positions by place."""
        self._require_inputs(inner)
        node, before = self._node, self._before
        length = node(
            before, "Gather", [node(before, "Shape", ["input_ids"], "shape"), self._constant("one", 1)], "length"
        )
        places = node(before, "Range", [self._constant("zero", 0), length, self._constant("one", 1)], "places")
        column = node(before, "Reshape", ["lengths", self._constant("column", [-1, 1])], "lengths.column")
        wide = node(before, "Cast", [column], "lengths.int64", to=TensorProto.INT64)
        types = node(before, "Sub", ["input_ids", "input_ids"], "types")
        computed = {"ids": "input_ids", "types": types, "mask": node(before, "Less", [places, wide], "mask")}
        if any(_ROLES[name] == "positions" for name in inner):
            first = self._constant("first_position", self._checkpoint.first_position)
            zeros = node(before, "Cast", [types], "zeros", to=TensorProto.INT64)
            computed["positions"] = node(
                before, "Add", [zeros, node(before, "Add", [places, first], "row")], "positions"
            )
        for name, value in inner.items():
            element = value.type.tensor_type.elem_type
            before.append(helper.make_node("Cast", [computed[_ROLES[name]]], [INSIDE + name], to=element))

    def _add_labels(self) -> list[onnx.ValueInfoProto]:
        """The outputs of a single NER head, as in builder.py, which says why `logits - logits` is added."""
        node, after = self._node, self._after
        name, _ = self._output()
        after.append(helper.make_node("Cast", [name], ["logits"], to=TensorProto.FLOAT))
        best = node(after, "ArgMax", ["logits"], "labels.int64", axis=-1, keepdims=0)
        after.append(helper.make_node("Cast", [best], ["labels"], to=TensorProto.INT32))
        below = node(after, "Sub", ["logits", self._reduce("ReduceMax", "logits", keepdims=1)], "below")
        finite = node(after, "Sub", ["logits", "logits"], "finite")
        powers = node(after, "Add", [node(after, "Exp", [below], "exp"), finite], "powers")
        after.append(helper.make_node("Reciprocal", [self._reduce("ReduceSum", powers, keepdims=0)], ["scores"]))
        labels, scores = (
            _value(name, kind, 2) for name, kind in (("labels", TensorProto.INT32), ("scores", TensorProto.FLOAT))
        )
        return [labels, scores, _value("logits", TensorProto.FLOAT, 3)]

    def _add_rows(self) -> list[onnx.ValueInfoProto]:
        """The output of any other head: logits, or the hidden states that the vector is made of."""
        node, after = self._node, self._after
        name, rank = self._output()
        value = node(after, "Cast", [name], "float32", to=TensorProto.FLOAT)
        if rank == 3 and self._head.reads == "first":
            value = node(after, "Gather", [value, self._constant("zero", 0)], "first", axis=1)
        elif rank == 3:
            # `[batch, 1, length]` by `[batch, length, width]`: no window's numbers reach another, even NaN.
            weights = node(after, "Reshape", ["owned", self._constant("as_rows", [0, 1, -1])], "weights")
            sums = node(after, "MatMul", [weights, value], "sums")
            value = node(after, "Reshape", [sums, self._constant("flat", [0, -1])], "means")
        after.append(helper.make_node("Identity", [value], ["head.0.rows"]))
        return [_value("head.0.rows", TensorProto.FLOAT, 2)]

    def _require_inputs(self, inner: dict[str, onnx.ValueInfoProto]) -> None:
        roles = [_ROLES.get(name) for name in inner]
        if not {"ids", "mask"} <= set(roles) or None in roles or len(set(roles)) < len(roles):
            raise self._refusal(f"its inputs are {', '.join(inner)}; we feed input_ids, attention_mask, token_type_ids, "
                                f"position_ids")  # fmt: skip
        for name, value in inner.items():
            dimensions = value.type.tensor_type.shape.dim
            if value.type.tensor_type.HasField("shape") and len(dimensions) != 2:
                raise self._refusal(f"{name} has {len(dimensions)} dimensions, not batch and length")
            if fixed := [each.dim_value for each in dimensions if each.HasField("dim_value")]:
                raise self._refusal(f"{name} has a fixed size ({fixed[0]}); export it with dynamic batch and length")

    def _output(self) -> tuple[str, int]:
        """The output that the head reads, and its number of dimensions. Raises ModelError if none fits, or several do."""
        for names, rank in _OUTPUTS[KINDS[self._head.kind].layers]:
            fitting = [
                each.name.removeprefix(INSIDE)
                for each in self._graph.output
                if _fits(each, rank, self._head.dimensions)
            ]
            chosen = [name for name in names if name in fitting]
            if not chosen and len(fitting) == 1 and "sentence_embedding" not in names:
                chosen = fitting
            if chosen:
                return INSIDE + chosen[0], rank
        sizes = {
            each.name.removeprefix(INSIDE): [
                str(d.dim_value or d.dim_param or "?") for d in each.type.tensor_type.shape.dim
            ]
            for each in self._graph.output
        }
        found = ", ".join(f"{name} [{', '.join(shape)}]" for name, shape in sizes.items())
        raise self._refusal(
            f"its outputs are {found}, and by config.json it is for {self._head.kind}: that takes "
            f"{_outputs_in_words(self._head)}, and no second output of this shape"
        )

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


def _fits(output: onnx.ValueInfoProto, rank: int, width: int) -> bool:
    """Whether an output may be numbers of this shape. Sizes that the file does not say show when it runs."""
    kind = output.type.tensor_type
    if kind.elem_type not in _NUMBERS:
        return False
    if not kind.HasField("shape"):
        return True
    return len(kind.shape.dim) == rank and kind.shape.dim[-1].dim_value in {0, width}


def _outputs_in_words(head: HeadSpec) -> str:
    """The outputs that a head can read, in words."""
    outputs = _OUTPUTS[KINDS[head.kind].layers]
    shapes = (f"[{', '.join(['batch', 'length'][: rank - 1])}, {head.dimensions}]" for _, rank in outputs)
    return " or ".join(f"{' or '.join(names)} {shape}" for (names, _), shape in zip(outputs, shapes, strict=True))


def _rename_external(model: onnx.ModelProto, old: str, new: str) -> None:
    for tensor in tensors_of(model):
        for entry in tensor.external_data:
            if (entry.key, entry.value) == ("location", old):
                entry.value = new


LARGEST = 1e4
"""Larger constants are cut. Masks are such: exporters write float32's lowest number, and a score below float16's lowest is
infinite, so a row of nothing but hidden keys would be NaN. exp(-1e4) is zero in every precision."""


def in_float16(path: Path) -> onnx.ModelProto:
    """The model of an ONNX file in float32, converted, with all of its weights in memory. Raises ModelError.

    Weights, constants and values become float16; what is not a float (ids, masks, shapes) stays. The converter's list of
    operators that stay in float32 applies. The sums of softmax and of layer norms are float32 in CUDA's kernels, also those
    of norms in small operators, because ONNX Runtime fuses these when it opens the graph. Where something overflows all the
    same, logits are NaN or labels change, and the quality gate refuses the graph: nothing else judges it.
    """
    from onnxruntime.transformers.float16 import convert_float_to_float16  # noqa: PLC0415  only GPUs need it

    model = read_graph(path)
    try:
        if model.functions:  # the converter does not look into functions
            model = inline_local_functions(model)
        # Types are inferred before the weights are read: inference copies the model, which must then be below 2 GB.
        model = onnx.shape_inference.infer_shapes(model)
        load_external_data_for_model(model, str(path.parent))
        converted: onnx.ModelProto = convert_float_to_float16(model, max_finite_val=LARGEST, disable_shape_infer=True)
    except Exception as error:  # the converter raises whatever its code happens to raise
        raise ModelError(f"{path}: it cannot be converted to fp16: {error}. Choose precision fp32.") from error
    return converted
