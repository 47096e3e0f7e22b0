"""The commands about models as an app, and a small model to run them on."""

from __future__ import annotations

import json
import shutil
import string
from collections.abc import Mapping
from pathlib import Path

import typer
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from typer.testing import CliRunner, Result

from enricher.workshop.check import model_check
from enricher.workshop.compare import model_compare
from enricher.workshop.evaluate import model_evaluate
from enricher.workshop.inspect import model_inspect
from enricher.workshop.prepare import model_prepare
from enricher.workshop.tune import model_tune

REFERENCE = Path(__file__).parents[1] / "data" / "reference"

app = typer.Typer()
for name, command in (
    ("check", model_check),
    ("compare", model_compare),
    ("evaluate", model_evaluate),
    ("inspect", model_inspect),
    ("prepare", model_prepare),
    ("tune", model_tune),
):
    app.command(name)(command)


def run_model(*arguments: str | Path, cache_dir: Path, env: Mapping[str, str] | None = None) -> Result:
    """Run a command; its FatalError is the result's `exception`."""
    environment = {"ENRICHER_MODEL__CACHE_DIR": str(cache_dir), **(env or {})}
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env=environment)


def tiny_model(folder: Path) -> Path:
    """A reference checkpoint, whose weights learned nothing, with a tokenizer that spells every word out."""
    shutil.copytree(REFERENCE / "bert", folder)
    letters = string.ascii_lowercase + string.digits + string.punctuation
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *(f"##{letter}" for letter in letters)]
    tokenizer = Tokenizer(WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", pieces.index("[CLS]")), ("[SEP]", pieces.index("[SEP]"))]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**names, "model_max_length": 160}))
    return folder
