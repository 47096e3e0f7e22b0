"""The table of the hub's models in `deploy/models.md`: a small folder of each kind does what its row says.

Weights are random. Folders that are refused have the files by which a real one is recognised.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from inference.conftest import REFERENCE
from onnx import TensorProto, helper
from pipeline.family_tokenizers import SPECIALS, around, tokenizer_of
from safetensors.numpy import load_file, save_file

from enricher import Enricher
from enricher.answers import Record
from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.checkpoint.onnx_model import OnnxModel
from enricher.worker.inference.device.sessions import Device
from enricher.worker.inference.graph.external import padded_variant
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.model import open_model
from enricher.worker.inference.run.selection import variants_for
from tools import ROOT
from tools.bench.plain_export import export

PAGE = ROOT / "deploy" / "models.md"
Build = Callable[[Path], object]


def rows() -> dict[str, list[str]]:
    """The table: the other cells of a row by its kind."""
    section = PAGE.read_text("utf-8").partition("\n## Models of the hub\n")[2].partition("\n## ")[0]
    cells = [[each.strip() for each in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return {kind: others for kind, *others in cells[2:]}


def write_config(folder: Path, values: Mapping[str, object]) -> None:
    """Change values of config.json, or write it."""
    path = folder / "config.json"
    old = json.loads(path.read_bytes()) if path.is_file() else {}
    path.write_text(json.dumps({**old, **values}))


def checkpoint(family: str) -> Build:
    """A folder with weights: the family's reference, with a row of random embeddings for each token of its tokenizer."""

    def build(folder: Path) -> None:
        shutil.copytree(REFERENCE / {"mmbert": "modernbert"}.get(family, family), folder)
        tokenizer = tokenizer_of(family, special=True)
        tokenizer.save(str(folder / "tokenizer.json"))
        first, last = around(family)
        names = {"cls_token": first, "sep_token": last, "mask_token": SPECIALS[family][-1]}
        (folder / "tokenizer_config.json").write_text(json.dumps(names))
        rows, weights = tokenizer.get_vocab_size(), load_file(folder / "model.safetensors")
        known = json.loads((folder / "config.json").read_bytes())["vocab_size"]
        (table,) = (name for name, value in weights.items() if len(value) == known)
        random = np.random.default_rng(0).standard_normal((rows, weights[table].shape[1]))
        save_file({**weights, table: random.astype(np.float32)}, folder / "model.safetensors")
        write_config(folder, {"vocab_size": rows})

    return build


def changed(build: Build, change: Callable[[Path], object]) -> Build:
    """The folder, with a change."""

    def both(folder: Path) -> None:
        build(folder)
        change(folder)

    return both


def exported(folder: Path) -> None:
    """Weights become an export of an architecture that we do not build, as optimum leaves it."""
    export(Checkpoint.open(folder), folder)
    (folder / "model.safetensors").unlink()
    write_config(folder, {"model_type": "big_bird", "architectures": ["BigBirdForTokenClassification"]})


def with_boxes(folder: Path) -> None:
    """An export that asks for the place of each word on its page."""
    exported(folder)
    model = onnx.load(str(folder / "model.onnx"), load_external_data=False)
    model.graph.input.append(helper.make_tensor_value_info("bbox", TensorProto.INT64, ["batch", "length", 4]))
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def add_weight(name: str) -> Callable[[Path], object]:
    """A weight that the architecture has no place for."""
    return lambda folder: save_file(
        {**load_file(folder / "model.safetensors"), name: np.zeros(7, np.float32)}, folder / "model.safetensors"
    )


def as_a_pickle(folder: Path) -> None:
    """Weights as PyTorch saved them."""
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def only(*names: str) -> Build:
    """A folder of another library."""

    def build(folder: Path) -> None:
        folder.mkdir()
        for name in names:
            (folder / name).write_text("{}")

    return build


def slow_tokenizer(folder: Path) -> None:
    """Words by MeCab, which have no places in the text."""
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    names = {"tokenizer_class": "BertJapaneseTokenizer", "word_tokenizer_type": "basic", "do_lower_case": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))


def labels(*names: str) -> Callable[[Path], object]:
    """Other names for the seven labels."""
    numbered = {str(number): names[number] if number < len(names) else f"X{number}" for number in range(7)}
    return lambda folder: write_config(folder, {"id2label": numbered})


BERT, XLM_R = checkpoint("bert"), checkpoint("xlm-roberta")
SERVED: Mapping[str, Build] = {
    "BERT": BERT,
    "DistilBERT": checkpoint("distilbert"),
    "RoBERTa": checkpoint("roberta"),
    "XLM-RoBERTa": XLM_R,
    "CamemBERT": checkpoint("camembert"),
    "ELECTRA": checkpoint("electra"),
    "ModernBERT": checkpoint("modernbert"),
    "mmBERT": checkpoint("mmbert"),
    "DeBERTa-v2, v3": checkpoint("deberta-v2"),
    "others that optimum exports": changed(BERT, exported),
}
REFUSED: Mapping[str, tuple[Build, str]] = {
    "no label `O`: punctuation, parts of speech": (
        changed(XLM_R, labels("0", ".", ",", "?")),
        r"no label of id2label is called O .*Give this name to the label of words outside",
    ),
    "pages as pictures (LayoutLM)": (
        changed(BERT, with_boxes),
        r"its inputs are .*bbox; we feed input_ids, attention_mask",
    ),
    "its own code": (
        changed(BERT, lambda folder: write_config(folder, {"model_type": "xlm-token"})),
        r"\(xlm-token\) is not supported.*Its export as ONNX runs.*optimum-cli export onnx.*Else choose",
    ),
    "GLiNER, Flair": (
        only("gliner_config.json", "pytorch_model.bin"),
        r"no config\.json\. .*GLiNER.*train one",
    ),
    "`pytorch_model.bin` alone": (
        changed(BERT, as_a_pickle),
        r"BertForTokenClassification\.from_pretrained\(\.\.\.\)\.save_pretrained",
    ),
    "a CRF, an adapter, a second head": (
        changed(BERT, add_weight("crf.start_transitions")),
        r"1 of \d+ weights would be ignored.*crf\.start_transitions.*choose a checkpoint without",
    ),
    "a slow tokenizer alone": (
        changed(BERT, slow_tokenizer),
        r"(is not a fast tokenizer|tokenizer cannot be loaded).*AutoTokenizer\.from_pretrained\(\.\.\.\)\.save_pretrained",
    ),
}


def test_each_row_of_the_table_is_tried() -> None:
    """A row that no folder stands for would be a claim."""
    assert {*SERVED, *REFUSED} == {*rows()}


@pytest.mark.parametrize("kind", SERVED)
def test_a_kind_that_is_served_finds_entities_in_these_precisions(kind: str, tmp_path: Path) -> None:
    """An article goes in, and a record comes out; by weights or by an export."""
    SERVED[kind](tmp_path / "model")
    opened = open_model(tmp_path / "model")
    _, _, served_by = rows()[kind]
    assert ("export" if isinstance(opened, OnnxModel) else "weights") == served_by
    on_a_cpu = {"fp32", "bf16"} | ({"int8"} if served_by == "weights" else set())
    assert (on_a_cpu, {"fp32", "fp16"}) == (precisions(opened, "cpu"), precisions(opened, "cuda"))
    with Enricher.load(tmp_path / "model", precision="fp32", model={"cache_dir": str(tmp_path)}) as enricher:
        (answer,) = enricher.enrich([{"id": "1", "title": "Ana Ribeiro", "body": "She lives in Lisbon."}])
    assert isinstance(answer, Record)
    assert "1" == answer.id


def precisions(opened: Checkpoint, device: Device) -> set[str]:
    """The precisions that are built for it, whether or not this machine has them."""
    return {each.precision for each in variants_for(device) if is_suited(opened, each)}


def is_suited(opened: Checkpoint, variant: Variant) -> bool:
    """It is built for this architecture."""
    if not isinstance(opened, OnnxModel):
        return variant.why_unsuited(opened.config) is None
    try:
        padded_variant(variant)
    except ModelError:
        return False
    return True


@pytest.mark.parametrize("kind", REFUSED)
def test_a_kind_that_is_refused_says_what_to_do(kind: str, tmp_path: Path) -> None:
    """The refusal comes when the folder is loaded, and is by name."""
    build, message = REFUSED[kind]
    build(tmp_path / "model")
    assert "refused" == rows()[kind][2]
    with pytest.raises(ModelError, match=message):
        Enricher.load(tmp_path / "model", precision="fp32", model={"cache_dir": str(tmp_path)})


def test_the_table_names_thirty_models() -> None:
    """Each once, by owner and name."""
    names = [name for cells in rows().values() for name in re.findall(r"[\w.-]+/[\w.-]+", cells[1])]
    assert 30 == len(names) == len(set(names))
