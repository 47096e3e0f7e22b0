"""A tokenizer is made from files of its folder that the digest counts, whatever its JSON files say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from inference.conftest import REFERENCE
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import Article, TokenizedArticle

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "anna", "rom"]
ELSEWHERE = [*PIECES[:5], "rom", "anna"]
"""The same words with other ids: a tokenizer made from it would be seen."""


def word_level(pieces: list[str]) -> Tokenizer:
    """A tokenizer of these words."""
    tokenizer = Tokenizer(models.WordLevel({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model with tokenizer.json. Beside the folder, and in it under a name that is no tokenizer's, lies another one."""
    found = Path(shutil.copytree(REFERENCE / "bert", tmp_path / "model"))
    word_level(PIECES).save(str(found / "tokenizer.json"))
    for other in (tmp_path, found):
        word_level(ELSEWHERE).save(str(other / "tokenizer.4.0.0.json"))
        (other / "other.txt").write_text("\n".join(ELSEWHERE), "utf-8")
    return found


def ids_of(folder: Path, text: str = "anna") -> list[int]:
    """The ids of a text by the tokenizer of a folder."""
    (result,) = ArticleTokenizer(Checkpoint.open(folder)).tokenize([Article("1", "", text)])
    assert isinstance(result, TokenizedArticle)
    return [int(each) for each in result.fields[1].ids]


def refused(folder: Path, name: str, said: Mapping[str, object]) -> str:
    """The reason for which a folder is refused whose file of this name says that."""
    (folder / name).write_text(json.dumps(said).replace("ELSEWHERE", str(folder.parent)), "utf-8")
    with pytest.raises(ModelError) as caught:
        ids_of(folder)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("special_tokens_map.json", {"tokenizer_file": "ELSEWHERE/tokenizer.4.0.0.json"}),
        ("special_tokens_map.json", {"tokenizer_file": "../tokenizer.4.0.0.json"}),
        ("special_tokens_map.json", {"vocab_file": "ELSEWHERE/other.txt"}),
        ("special_tokens_map.json", {"chat_template": "x"}),
        ("tokenizer_config.json", {"fast_tokenizer_files": ["tokenizer.4.0.0.json"]}),
        ("tokenizer_config.json", {"fast_tokenizer_files": ["tokenizer.json", "../tokenizer.4.0.0.json"]}),
        ("tokenizer_config.json", {"fast_tokenizer_files": {"../tokenizer.4.0.0.json": "tokenizer.json"}}),
        ("tokenizer_config.json", {"gguf_file": "ELSEWHERE/model.gguf"}),
        ("tokenizer_config.json", {"init_inputs": ["ELSEWHERE/other.txt"]}),
        ("tokenizer_config.json", {"merges_file": "ELSEWHERE/other.txt"}),
        ("tokenizer_config.json", {"emoji_file": "other.txt"}),
    ],
)
def test_a_file_that_is_not_counted_is_refused_by_the_name_of_its_key(
    folder: Path, name: str, said: dict[str, object]
) -> None:
    """Outside the folder, or in it under another name: the digest would stay the same if that file changed."""
    assert [5] == ids_of(folder), "by the folder's own tokenizer"
    reason = refused(folder, name, said)
    assert [] == [word for word in (name, next(iter(said))) if word not in reason]


@pytest.mark.parametrize(
    "said",
    [
        {"vocab": "ELSEWHERE/other.txt"},
        {"vocab_file": "ELSEWHERE/other.txt"},
        {"init_inputs": ["ELSEWHERE/other.txt"]},
        {"dictionary": "ELSEWHERE/other.txt"},
        {"dictionary": {"of": ["ELSEWHERE/other.txt"]}},
    ],
)
def test_without_tokenizer_json_no_argument_of_a_class_may_be_a_path(folder: Path, said: dict[str, object]) -> None:
    """Such a folder chooses a class of transformers, and each class has arguments of its own."""
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(PIECES), "utf-8")
    assert [5] == ids_of(folder)
    assert next(iter(said)) in refused(folder, "tokenizer_config.json", said)


def test_a_vocabulary_that_only_a_class_knows_is_refused(folder: Path) -> None:
    """The library takes a `tokenizer.model` that lies in the folder; it is none of the files that are counted."""
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(PIECES), "utf-8")
    (folder / "tokenizer.model").write_text("\n".join(ELSEWHERE), "utf-8")
    with pytest.raises(ModelError, match=r"tokenizer\.model|cannot be loaded"):
        ids_of(folder)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tokenizer_config.json", {"tokenizer_file": "/home/someone/.cache/tokenizer.json", "vocab_file": None}),
        ("tokenizer_config.json", {"name_or_path": "someone/bert", "special_tokens_map_file": "/tmp/map.json"}),
        ("tokenizer_config.json", {"fast_tokenizer_files": ["tokenizer.json"], "base_model": "someone/bert"}),
        ("tokenizer_config.json", {"mask_token": "</m>", "chat_template": "{{ a/b }}", "auto_map": {"x": ["a/b--c", None]}}),
        ("special_tokens_map.json", {"mask_token": {"content": "[MASK]"}, "additional_special_tokens": ["</x>"]}),
    ],
)  # fmt: skip
def test_what_folders_of_the_hub_say_is_taken(folder: Path, name: str, said: dict[str, object]) -> None:
    """They name the machine that wrote them, and tokens with slashes; transformers opens none of that."""
    (folder / name).write_text(json.dumps(said), "utf-8")
    assert [5] == ids_of(folder)
