"""The models of `scripts/bench families` are equally large, and its table says what was not measured."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors import safe_open

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.graph.builder import build
from enricher.worker.inference.graph.graph_files import OnnxWriter
from enricher.worker.inference.graph.padded import PaddedFloat32
from tools.bench.families import BERT, SHAPES, WORDS
from tools.bench.gpu.checkpoints import write_labelled


@pytest.mark.parametrize("family", SHAPES)
def test_each_family_has_as_many_weights_in_its_layers_as_bert(family: str, tmp_path: Path) -> None:
    """And a graph of ours; a single layer is enough to see it."""
    folder = write_labelled(tmp_path / family, replace(SHAPES[family], num_hidden_layers=1), WORDS)
    with Path(os.devnull).open("wb") as nowhere:
        build([Checkpoint.open(folder)], PaddedFloat32(), OnnxWriter(nowhere, os.devnull))
    with safe_open(folder / "model.safetensors", framework="np") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118  it is no dictionary
    products = sum(shape[0] * shape[1] for name, shape in shapes.items() if ".layer" in name and len(shape) == 2)
    assert replace(BERT, num_hidden_layers=1).layer_parameters == products
