"""The table of the hub's models in `deploy/models.md`: a small folder of each kind is opened, and does what its row says."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from inference.conftest import REFERENCE, change_config

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.checkpoint.onnx_model import OnnxModel
from enricher.worker.inference.device.sessions import Device
from enricher.worker.inference.graph.external import padded_variant
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.model import open_model
from enricher.worker.inference.run.selection import variants_for
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from tools import ROOT
from tools.bench.plain_export import export

EXPORTED = "others that optimum exports"
SERVED = {
    "BERT": "bert",
    "DistilBERT": "distilbert",
    "RoBERTa": "roberta",
    "XLM-RoBERTa": "xlm-roberta",
    "CamemBERT": "camembert",
    "ELECTRA": "electra",
    "ModernBERT": "modernbert",
    "mmBERT": "modernbert",
    "DeBERTa-v2, v3": "deberta-v2",
    EXPORTED: "bert",
}
"""The family of each kind."""


def rows() -> dict[str, list[str]]:
    """The table: the other cells of a row by its kind."""
    section = (ROOT / "deploy" / "models.md").read_text("utf-8").partition("\n## Models of the hub\n")[2]
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line[:1] == "|"]
    cells = [[each.strip() for each in line.strip("|").split("|")] for line in lines]
    return {kind: others for kind, *others in cells[2:]}


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


def test_each_row_that_serves_is_tried_and_thirty_models_are_named() -> None:
    """A row that no folder stands for would be a claim. Each model is named once, by owner and name."""
    assert {*SERVED} == {kind for kind, cells in rows().items() if "refused" != cells[2]}
    names = [name for cells in rows().values() for name in re.findall(r"[\w.-]+/[\w.-]+", cells[1])]
    assert 30 == len(names) == len(set(names))


@pytest.mark.parametrize("kind", SERVED)
def test_a_kind_is_served_in_the_precisions_of_the_page(kind: str, tmp_path: Path) -> None:
    """By weights, or by an export of an architecture that we do not build, as optimum leaves it."""
    folder = Path(shutil.copytree(REFERENCE / SERVED[kind], tmp_path / "model"))
    if kind == EXPORTED:
        export(Checkpoint.open(folder), folder)
        (folder / "model.safetensors").unlink()
        change_config(folder, model_type="big_bird", architectures=["BigBirdForTokenClassification"])
    opened = open_model(folder)
    _, _, served_by = rows()[kind]
    assert ("export" if isinstance(opened, OnnxModel) else "weights") == served_by
    on_a_cpu = {"fp32", "bf16"} | ({"int8"} if served_by == "weights" else set())
    assert (on_a_cpu, {"fp32", "fp16"}) == (precisions(opened, "cpu"), precisions(opened, "cuda"))


def of_another_library(folder: Path) -> None:
    """GLiNER's files."""
    for path in folder.iterdir():
        path.unlink()
    (folder / "gliner_config.json").write_text("{}")


def slow_tokenizer(folder: Path) -> None:
    """Words by MeCab, which have no places in the text."""
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    names = {"tokenizer_class": "BertJapaneseTokenizer", "word_tokenizer_type": "basic", "do_lower_case": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("GLiNER, Flair", of_another_library, r"no config\.json\. .*GLiNER.*train one"),
        (
            "`pytorch_model.bin` alone",
            lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
            r"BertForTokenClassification\.from_pretrained\(\.\.\.\)\.save_pretrained",
        ),
        (
            "a slow tokenizer alone",
            slow_tokenizer,
            r"(is not a fast tokenizer|tokenizer cannot be loaded).*AutoTokenizer\.from_pretrained\(\.\.\.\)\.save",
        ),
    ],
    ids=["GLiNER", "pickle", "slow tokenizer"],
)
def test_a_kind_that_is_refused_says_what_to_do(
    kind: str, change: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    """By name. The other rows that are refused are tried where the rule is: labels, inputs, families, unread weights."""
    folder = Path(shutil.copytree(REFERENCE / "bert", tmp_path / "model"))
    change(folder)
    assert "refused" == rows()[kind][2]
    with pytest.raises(ModelError, match=message):
        ArticleTokenizer(open_model(folder))
