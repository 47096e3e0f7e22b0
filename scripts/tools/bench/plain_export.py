"""A checkpoint as an exporter would write it: padded, with standard operators that ONNX Runtime's optimizer recognises.

Benchmarks compare with it, and tests use it as a model that is ONNX already. The graph is that of PyTorch's TorchScript
exporter with eager attention, which ONNX Runtime's optimizer fuses best.
"""

from __future__ import annotations

import logging
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from onnx import TensorProto

from enricher.worker.heads import KINDS
from enricher.worker.inference.checkpoint.bert_weights import BERT_FAMILIES, BertFamily
from enricher.worker.inference.checkpoint.families import CLASSIFIER
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.graph.graph_files import OnnxWriter

MODEL_FILE = "model.onnx"


def export(checkpoint: Checkpoint, folder: Path) -> Path:
    """Write `model.onnx` and its weights into `folder`. Inputs are int64: ids, mask, and types if the family has them."""
    with (folder / "model.onnx.data").open("wb") as weights:
        writer = OnnxWriter(weights, "model.onnx.data")
        _Export(checkpoint, writer).write()
    model = writer.model("main_graph", {})
    del model.opset_import[1]  # ONNX Runtime's own operators: none is used
    (folder / MODEL_FILE).write_bytes(model.SerializeToString())
    return folder / MODEL_FILE


def write_fused(checkpoint: Checkpoint, path: Path, *, half: bool = False) -> Path:
    """Write the export as ONNX Runtime's transformer optimizer leaves it: its guide's recommendation for encoders.

    `half`: in float16, with weights in a file beside it. Took 14 GiB of memory for XLM-R-large.
    """
    from onnxruntime.transformers import float16, optimizer  # noqa: PLC0415  it configures logging

    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        model = optimizer.optimize_model(
            str(export(checkpoint, Path(scratch))),
            model_type="bert",
            num_heads=checkpoint.config.heads,
            hidden_size=checkpoint.config.hidden_size,
            opt_level=0,  # the session applies ONNX Runtime's own passes
        )
        fused = model.get_fused_operator_statistics()
        assert checkpoint.config.layers == fused["Attention"], f"the optimizer missed attention: {fused}"
        if half:
            # The optimizer's own method infers shapes first, which fails above 2 GB and is not needed here.
            model.model = float16.convert_float_to_float16(model.model, keep_io_types=False, disable_shape_infer=True)
        model.save_model_to_file(str(path), use_external_data_format=half)
    logging.disable(logging.NOTSET)
    return path


@dataclass(frozen=True, slots=True)
class _Export:
    checkpoint: Checkpoint
    writer: OnnxWriter

    @property
    def family(self) -> BertFamily:
        """The names of its weights. Other encoders than BERT's have no plain export."""
        return BERT_FAMILIES[self.checkpoint.config.model_type]

    def write(self) -> None:
        inputs = ["input_ids", "attention_mask", *(["token_type_ids"] if self.family.token_types else [])]
        for name in inputs:
            self.writer.input(name, TensorProto.INT64, ["batch", "length"])
        hidden, mask = self._embeddings(), self._mask()
        for index in range(self.checkpoint.config.layers):
            hidden = self._layer(index, hidden, mask)
        layers, width = KINDS[self.checkpoint.head.kind].layers, self.checkpoint.head.dimensions
        if layers == "labels":
            self._linear(CLASSIFIER, hidden, output="logits")
            self.writer.output("logits", TensorProto.FLOAT, ["batch", "length", width])
        elif layers == "classifier":
            self._classes(hidden)
            self.writer.output("logits", TensorProto.FLOAT, ["batch", width])
        else:
            self.writer.node("Identity", [hidden], "last_hidden_state")
            self.writer.output("last_hidden_state", TensorProto.FLOAT, ["batch", "length", width])

    def _classes(self, hidden: str) -> None:
        """A head for sequences, over the first token."""
        names, node = self.family.classes, self.writer.node
        first = node("Gather", [hidden, self.writer.constant("first_place", np.array(0, np.int64))], "first", axis=1)
        assert names.dense is not None, "every head of BERT's families has it"
        dense = self._linear(names.dense, first)
        if names.activation == "gelu":
            active = self._gelu(dense, "classes")
        else:
            active = node({"tanh": "Tanh", "relu": "Relu"}[names.activation], [dense], "classes.active")
        self._linear(names.output, active, output="logits")

    def _embeddings(self) -> str:
        family, node = self.family, self.writer.node
        tables = [("word_embeddings", "input_ids"), ("position_embeddings", self._positions())]
        if family.token_types:
            tables.insert(1, ("token_type_embeddings", "token_type_ids"))
        parts = [node("Gather", [self._weight(family.embeddings(part)), ids], f"{part}.rows") for part, ids in tables]
        total = parts[0]
        for number, part in enumerate(parts[1:]):
            total = node("Add", [total, part], f"embeddings.{number}")
        normed = self._norm(family.embeddings("LayerNorm"), total)
        narrow = self.checkpoint.config.embedding_size not in {None, self.checkpoint.config.hidden_size}
        return self._linear(family.projection, normed) if narrow else normed

    def _positions(self) -> str:
        """From a table; in families whose positions begin after the padding id, counted over tokens that are not padding."""
        node, constant, config = self.writer.node, self.writer.constant, self.checkpoint.config
        if not self.family.positions_after_padding:
            places = constant("places", np.arange(config.max_position_embeddings, dtype=np.int64)[None])
            node("Shape", ["input_ids"], "length", start=1, end=2)
            slicing = [constant(name, np.array([value], np.int64)) for name, value in (("from", 0), ("axis", 1))]
            return node("Slice", [places, slicing[0], "length", slicing[1]], "position_ids")
        padding = constant("padding", np.array(self.checkpoint.first_position - 1, np.int64))
        real = node(
            "Cast", [node("Not", [node("Equal", ["input_ids", padding], "is_pad")], "real")], "real.int64", to=7
        )
        counted = node(
            "Mul", [node("CumSum", [real, constant("axis", np.array(1, np.int64))], "count"), real], "counted"
        )
        return node("Add", [counted, padding], "position_ids")

    def _mask(self) -> str:
        """`(1 - mask) * lowest`, `[batch, 1, 1, length]`."""
        node, constant = self.writer.node, self.writer.constant
        wide = node("Unsqueeze", ["attention_mask", constant("mask_axis_1", np.array([1], np.int64))], "mask.1")
        wide = node("Unsqueeze", [wide, constant("mask_axis_2", np.array([2], np.int64))], "mask.2")
        one, lowest = np.array(1, np.float32), np.array(np.finfo(np.float32).min, np.float32)
        below = node(
            "Sub", [constant("one", one), node("Cast", [wide], "mask.float", to=TensorProto.FLOAT)], "mask.not"
        )
        return node("Mul", [below, constant("lowest", lowest)], "mask.additive")

    def _layer(self, index: int, hidden: str, mask: str) -> str:
        family, node = self.family, self.writer.node
        name, names = partial(family.in_layer, index), family.layer
        mixed = self._linear(name(names.attention_output), self._attention(index, hidden, mask))
        attended = self._norm(name(names.attention_norm), node("Add", [mixed, hidden], f"{index}.attended"))
        active = self._gelu(self._linear(name(names.intermediate), attended), str(index))
        outer = self._linear(name(names.output), active)
        return self._norm(name(names.output_norm), node("Add", [outer, attended], f"{index}.sum"))

    def _gelu(self, value: str, prefix: str) -> str:
        node, constant = self.writer.node, self.writer.constant
        root = constant("root_of_two", np.array(math.sqrt(2), np.float32))
        erf = node("Erf", [node("Div", [value, root], f"{prefix}.scaled")], f"{prefix}.erf")
        one_more = node("Add", [erf, constant("one", np.array(1, np.float32))], f"{prefix}.erf1")
        gated = node("Mul", [value, one_more], f"{prefix}.gated")
        return node("Mul", [gated, constant("half", np.array(0.5, np.float32))], f"{prefix}.gelu")

    def _attention(self, index: int, hidden: str, mask: str) -> str:
        family, node, constant, config = (
            self.family,
            self.writer.node,
            self.writer.constant,
            self.checkpoint.config,
        )
        size = config.hidden_size // config.heads
        split = constant("split", np.array([0, 0, config.heads, size], np.int64))
        join = constant("join", np.array([0, 0, config.hidden_size], np.int64))

        def heads_of(part: str, order: Sequence[int]) -> str:
            projected = self._linear(family.in_layer(index, part), hidden)
            apart = node("Reshape", [projected, split], f"{index}.{part}.split")
            return node("Transpose", [apart], f"{index}.{part}.heads", perm=list(order))

        query, value = (heads_of(part, (0, 2, 1, 3)) for part in (family.layer.query, family.layer.value))
        raw = node("MatMul", [query, heads_of(family.layer.key, (0, 2, 3, 1))], f"{index}.scores")
        scaled = node("Div", [raw, constant("root", np.array(math.sqrt(size), np.float32))], f"{index}.scaled_scores")
        weights = node("Softmax", [node("Add", [scaled, mask], f"{index}.masked")], f"{index}.weights", axis=-1)
        context = node("MatMul", [weights, value], f"{index}.context")
        return node(
            "Reshape", [node("Transpose", [context], f"{index}.back", perm=[0, 2, 1, 3]), join], f"{index}.joined"
        )

    def _linear(self, name: str, value: str, *, output: str | None = None) -> str:
        """PyTorch stores `[out, in]`; exporters transpose it."""
        weight = self.writer.weight(f"{name}.weight", np.ascontiguousarray(self.checkpoint.weight(f"{name}.weight").T))
        bias = self.writer.weight(f"{name}.bias", self.checkpoint.weight(f"{name}.bias"))
        product = self.writer.node("MatMul", [value, weight], f"{name}/MatMul")
        return self.writer.node("Add", [bias, product], output or f"{name}/Add")

    def _norm(self, name: str, value: str) -> str:
        inputs = [value, self._weight(name), self.writer.weight(f"{name}.bias", self.checkpoint.weight(f"{name}.bias"))]
        epsilon = self.checkpoint.config.layer_norm_eps
        return self.writer.node("LayerNormalization", inputs, f"{name}/norm", axis=-1, epsilon=epsilon)

    def _weight(self, name: str) -> str:
        return self.writer.weight(f"{name}.weight", self.checkpoint.weight(f"{name}.weight"))
