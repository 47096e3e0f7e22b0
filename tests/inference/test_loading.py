"""A folder's tokenizer: its file as it stands, but for what the configuration says of it; and what is refused.

One that does not fit the model, one that loses characters, and one of files that the digest does not count.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from inference.conftest import REFERENCE, tokenized
from pipeline.family_tokenizers import SPECIALS, tokenizer_of
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.run.model import EMBEDDED_FOLDER
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.inference.tokenizer.loading import require_characters

SHARED_MODELS = Path(__file__).parents[3] / "shared" / "models"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "Anna", "anna", "é", "e", "in", "Rom", "rom"]


def word_piece(*, lowercase: bool = False, pieces: list[str] = PIECES) -> Tokenizer:
    """A tokenizer of a few words, as BERT's are."""
    tokenizer = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    numbers = [(name, pieces.index(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=numbers)
    return tokenizer


def spelling(*, splitter: pre_tokenizers.PreTokenizer | None) -> Tokenizer:
    """One that spells every text out in letters, and knows words only by `splitter`."""
    letters = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"▁ĠAabeimnort."]
    tokenizer = Tokenizer(models.BPE({piece: number for number, piece in enumerate(letters)}, [], unk_token="[UNK]"))
    if splitter is None:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
    else:
        tokenizer.pre_tokenizer = splitter
    return tokenizer


def loaded(folder: Path, tokenizer: Tokenizer, *, family: str = "bert", **said: object) -> ArticleTokenizer:
    """The worker's tokenizer of a folder with that file; `said` is its tokenizer_config.json, none where nothing is."""
    shutil.copytree(REFERENCE / family, folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    if said:
        (folder / "tokenizer_config.json").write_text(json.dumps(said))
    return ArticleTokenizer(Checkpoint.open(folder))


def ids_of(tokenizer: ArticleTokenizer, text: str) -> list[int]:
    """The ids of a text."""
    return [int(each) for each in tokenized(tokenizer, text).fields[1].ids]


@pytest.mark.parametrize("said", [{}, {"model_max_length": 64}, {"tokenizer_class": "BertTokenizer"}])
def test_the_tokenizer_file_is_read_as_it_stands(said: dict[str, Any], tmp_path: Path) -> None:
    """A cased model whose configuration says nothing of case gets its text in the case that it has."""
    tokenizer = loaded(tmp_path / "cased", word_piece(), **said)
    assert [PIECES.index("Anna"), PIECES.index("in"), PIECES.index("Rom")] == ids_of(tokenizer, "Anna in Rom")
    assert ((2,), (3,)) == (tokenizer.specials_before, tokenizer.specials_after)


def test_what_the_configuration_says_of_case_and_accents_counts(tmp_path: Path) -> None:
    """As transformers has it, also where the file says otherwise."""
    lower = loaded(tmp_path / "lower", word_piece(), tokenizer_class="BertTokenizer", do_lower_case=True)
    assert [PIECES.index("anna"), PIECES.index("e")] == ids_of(lower, "Anna É")
    kept = loaded(tmp_path / "kept", word_piece(), do_lower_case=True, strip_accents=False)
    assert [PIECES.index("anna"), PIECES.index("é")] == ids_of(kept, "Anna É")


@pytest.mark.parametrize("said", [True, False])
def test_what_the_configuration_says_of_the_first_space_counts(said: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """RoBERTa's taggers are trained with it."""
    tokenizer = spelling(splitter=pre_tokenizers.ByteLevel(add_prefix_space=not said))
    space = tokenizer.token_to_id("Ġ")
    assert said == (space == ids_of(loaded(tmp_path / "model", tokenizer, add_prefix_space=said), "Anna")[0])


def test_a_special_token_that_no_window_has_needs_no_embedding(tmp_path: Path) -> None:
    """Vocabularies without [MASK] run: transformers adds it behind the end. One that windows do have is refused."""
    rows = Checkpoint.open(REFERENCE / "bert").config.vocab_size
    full = PIECES + [f"word{number}" for number in range(rows - len(PIECES))]
    masked = loaded(tmp_path / "masked", word_piece(pieces=full), mask_token="[MASK]", pad_token="<pad>")
    assert (rows, 0) == (len(full), masked.pad_id)
    beyond = [name for name in full if name != "[SEP]"]
    with pytest.raises(ModelError, match="they do not belong together"):
        loaded(tmp_path / "beyond", word_piece(pieces=[*beyond, "one more", "[SEP]"]))


@pytest.mark.parametrize(
    ("pieces", "said", "first"),
    [
        (PIECES, {"do_lower_case": False}, "Anna"),
        (PIECES, {"do_lower_case": True}, "anna"),
        (["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "anna"], None, "anna"),
    ],
)
def test_a_vocabulary_with_capitals_needs_a_word_on_case(
    pieces: list[str], said: dict[str, object] | None, first: str, tmp_path: Path
) -> None:
    """By default a cased model would silently get lower-case text. Special tokens are no words with capitals."""
    folder = Path(shutil.copytree(REFERENCE / "bert", tmp_path / "model"))
    (folder / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    if said is not None:
        with pytest.raises(ModelError, match='"do_lower_case": false'):
            ArticleTokenizer(Checkpoint.open(folder))
        (folder / "tokenizer_config.json").write_text(json.dumps(said))
    assert [pieces.index(first)] == ids_of(ArticleTokenizer(Checkpoint.open(folder)), "Anna")


def test_a_tokenizer_that_does_not_load_is_refused_with_the_way_out(tmp_path: Path) -> None:
    """A SentencePiece model needs a library that is not here; what transformers says of it is about another."""
    folder = Path(shutil.copytree(REFERENCE / "xlm-roberta", tmp_path / "model"))
    (folder / "sentencepiece.bpe.model").write_bytes(b"model")
    with pytest.raises(ModelError, match=r"There is no tokenizer\.json; .* loads this tokenizer, .*save_pretrained"):
        ArticleTokenizer(Checkpoint.open(folder))


def test_a_folder_with_sentencepiece_alone_is_refused_with_a_conversion(tmp_path: Path) -> None:
    """DeBERTa's. transformers 5 converts it too, without its table of characters: half a sign would be unknown."""
    folder = Path(shutil.copytree(REFERENCE / "deberta-v2", tmp_path / "model"))
    (folder / "spm.model").write_bytes(b"model")
    with pytest.raises(ModelError, match=r"no tokenizer\.") as caught:
        ArticleTokenizer(Checkpoint.open(folder))
    *_, install, convert = str(caught.value).splitlines()
    assert install.startswith("  pip install 'transformers==4.57.1' sentencepiece")
    (_, code) = convert.split("python -c ")
    assert str(folder) in code
    compile(code.strip('"'), "command", "exec")


def test_a_tokenizer_that_fails_at_a_text_is_refused(tmp_path: Path) -> None:
    """As one does whose token for unknown words is not in its vocabulary."""
    tokenizer = word_piece(pieces=["[CLS]", "[SEP]", "Anna"])
    with pytest.raises(ModelError, match=r"its tokenizer cannot be loaded: .*UNK"):
        loaded(tmp_path / "model", tokenizer)


def test_padding_and_truncation_of_a_file_reach_no_window(tmp_path: Path) -> None:
    """As training left them switched on."""
    tokenizer = word_piece()
    tokenizer.enable_padding(length=32)
    tokenizer.enable_truncation(max_length=4)
    ours = loaded(tmp_path / "model", tokenizer)
    assert ((2,), (3,)) == (ours.specials_before, ours.specials_after)
    assert [PIECES.index(each) for each in ("Anna", "in", "Rom")] * 5 == ids_of(ours, "Anna in Rom " * 5)


NAMES = ["Amsterdam is a city.", "Anna A. lives in Amsterdam.", "E y o"] * 20
FIRST_LETTERS = normalizers.Replace(Regex(r"(?<= )\p{L}"), "")


def byte_level(*, splitter: pre_tokenizers.PreTokenizer | None = None, trims: bool = True) -> Tokenizer:
    """A tokenizer of a few words in bytes; by default, the words are those of RobBERT."""
    tokenizer = Tokenizer(models.BPE())
    ours = pre_tokenizers.ByteLevel(add_prefix_space=True)
    robbert = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), ours, pre_tokenizers.Punctuation()])
    tokenizer.pre_tokenizer = splitter or robbert
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(NAMES, trainer)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=trims)
    return tokenizer


def unsplit(normalizer: normalizers.Normalizer) -> Tokenizer:
    """A tokenizer that spells, with this normalizer before."""
    tokenizer = spelling(splitter=None)
    tokenizer.normalizer = normalizers.Sequence([normalizer, normalizers.Replace(" ", "▁")])
    return tokenizer


def without_unknown() -> Tokenizer:
    """One that leaves out the characters that its vocabulary lacks, and so gives those beside them wrong places."""
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate("Aabdeimnorst")}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def chars_of(tokenizer: ArticleTokenizer, text: str) -> list[str]:
    """What each token of a text has."""
    body = tokenized(tokenizer, text).fields[1]
    return [text[slice(*body.spans.chars_of(token))] for token in range(len(body.ids))]


def test_offsets_that_only_spaces_make_wrong_are_corrected(tmp_path: Path) -> None:
    """Without it, `Anna` would begin at its second letter and `A` nowhere; the spaces before them decide nothing."""
    tokenizer = byte_level()
    folder = Path(shutil.copytree(REFERENCE / "roberta", tmp_path / "model"))
    config = json.loads((folder / "config.json").read_bytes()) | {"vocab_size": tokenizer.get_vocab_size()}
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer.save(str(folder / "tokenizer.json"))
    found = chars_of(ArticleTokenizer(Checkpoint.open(folder)), "in (Anna) A. 東")
    assert ["in", "", "(", "Anna", "", ")", "A", "", ".", "", "東", "東", "東"] == found


@pytest.mark.parametrize("name", [*SPECIALS, "newswire-e5", *(each.name for each in SHARED_MODELS.glob("*/"))])
def test_real_tokenizers_keep_all_characters(name: str) -> None:
    """The families', the embedded model's, and those of the real checkpoints beside the checkout, if any: as they are."""
    folder = EMBEDDED_FOLDER if name == EMBEDDED_FOLDER.name else SHARED_MODELS / name
    file = str(folder / "tokenizer.json")
    tokenizer = tokenizer_of(name, special=True) if name in SPECIALS else Tokenizer.from_file(file)
    before = tokenizer.to_str()
    require_characters(tokenizer, Path("model"))
    assert before == tokenizer.to_str()


@pytest.mark.parametrize(
    "tokenizer",
    [
        word_piece(lowercase=True),
        word_piece(pieces=["[UNK]", "[CLS]", "[SEP]"]),
        unsplit(normalizers.Nmt()),
        unsplit(normalizers.NFKC()),
        unsplit(normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()])),
        byte_level(splitter=pre_tokenizers.ByteLevel()),
        byte_level(splitter=pre_tokenizers.ByteLevel(), trims=False),
        without_unknown(),
    ],
    ids=["uncased", "unknown words", "Nmt", "NFKC", "NFKD", "byte-level", "not trimmed", "no unknown token"],
)
def test_what_is_dropped_on_purpose_is_no_loss(tokenizer: Tokenizer) -> None:
    """Accents, control characters, and what the vocabulary lacks."""
    require_characters(tokenizer, Path("model"))


def test_a_tokenizer_that_loses_letters_is_refused(tmp_path: Path) -> None:
    """With the folder, the letter, where the fault is and what to do."""
    tokenizer = word_piece()
    tokenizer.normalizer = FIRST_LETTERS
    said = r"model: its tokenizer loses characters.* no token has 'v' of 'van'.*normalizer.*save_pretrained"
    with pytest.raises(ModelError, match=said):
        loaded(tmp_path / "model", tokenizer)


def test_a_tokenizer_that_fails_at_ordinary_text_is_refused(tmp_path: Path) -> None:
    """Every article with such a character would be a dead letter."""
    tokenizer = Tokenizer(models.Unigram([(piece, -1.0) for piece in PIECES]))
    with pytest.raises(ModelError, match=r"fails at ordinary text: .*token for unknown words"):
        loaded(tmp_path / "model", tokenizer)


def test_spaces_before_words_decide_nothing(tmp_path: Path) -> None:
    """SentencePiece's, wherever they are; but the sign for a space that is in the text is text."""
    tokenizer = spelling(splitter=pre_tokenizers.Metaspace())
    assert ["", "A", "", "b", "▁", "A"] == chars_of(loaded(tmp_path / "model", tokenizer), "A b▁A")


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "anna", "rom"]
ELSEWHERE = [*WORDS[:5], "rom", "anna"]
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
    word_level(WORDS).save(str(found / "tokenizer.json"))
    for other in (tmp_path, found):
        word_level(ELSEWHERE).save(str(other / "tokenizer.4.0.0.json"))
        (other / "other.txt").write_text("\n".join(ELSEWHERE), "utf-8")
    return found


def ids_in(folder: Path) -> list[int]:
    """The ids of `anna` by the tokenizer of a folder."""
    return ids_of(ArticleTokenizer(Checkpoint.open(folder)), "anna")


def refused(folder: Path, name: str, said: Mapping[str, object]) -> str:
    """The reason for which a folder is refused whose file of this name says that."""
    (folder / name).write_text(json.dumps(said).replace("ELSEWHERE", str(folder.parent)), "utf-8")
    with pytest.raises(ModelError) as caught:
        ids_in(folder)
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
    assert [5] == ids_in(folder), "by the folder's own tokenizer"
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
    """Such a folder chooses a class of transformers, and each class has its own arguments."""
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(WORDS), "utf-8")
    assert [5] == ids_in(folder)
    assert next(iter(said)) in refused(folder, "tokenizer_config.json", said)


def test_a_vocabulary_that_only_a_class_knows_is_refused(folder: Path) -> None:
    """The library takes a `tokenizer.model` that lies in the folder; it is none of the files that are counted."""
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(WORDS), "utf-8")
    (folder / "tokenizer.model").write_text("\n".join(ELSEWHERE), "utf-8")
    with pytest.raises(ModelError, match=r"tokenizer\.model|cannot be loaded"):
        ids_in(folder)


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
    assert [5] == ids_in(folder)
