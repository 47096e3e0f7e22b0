"""Tokenizers that lose characters of a text: corrected or refused; and those that seem to, and are right."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from commands.model_app import run_model
from inference.test_loading import PIECES, REFERENCE, loaded, spelling, word_piece
from pipeline.family_tokenizers import SPECIALS, tokenizer_of
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from enricher import Enricher
from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.run.model import EMBEDDED_FOLDER
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.inference.tokenizer.loading import require_characters
from enricher.worker.records import Article, TokenizedArticle

SHARED_MODELS = Path(__file__).parents[3] / "shared" / "models"
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
    (result,) = tokenizer.tokenize([Article("1", "", text)])
    assert isinstance(result, TokenizedArticle)
    body = result.fields[1]
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


def test_robberts_own_offsets_lose_characters() -> None:
    """The library's, as they are: the reason for the probe."""
    encoding = byte_level().encode("in Anna A")
    assert ["in", "nna", ""] == ["in Anna A"[slice(*chars)] for chars in encoding.offsets]


@pytest.mark.parametrize("family", SPECIALS)
def test_the_families_keep_all_characters(family: str) -> None:
    """Nothing is changed about their tokenizers either."""
    tokenizer = tokenizer_of(family, special=True)
    before = tokenizer.to_str()
    require_characters(tokenizer, Path("model"))
    assert before == tokenizer.to_str()


@pytest.mark.parametrize("folder", [EMBEDDED_FOLDER, *SHARED_MODELS.glob("*/")], ids=lambda folder: folder.name)
def test_real_tokenizers_keep_all_characters(folder: Path) -> None:
    """The embedded model's, and those of the real checkpoints that are beside the checkout, if any."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    before = tokenizer.to_str()
    require_characters(tokenizer, folder)
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
    """By each way to a model: with the folder, the letter, where the fault is and what to do."""
    tokenizer = word_piece()
    tokenizer.normalizer = FIRST_LETTERS
    said = r"model: its tokenizer loses characters.* no token has 'v' of 'van'.*normalizer.*save_pretrained"
    with pytest.raises(ModelError, match=said):
        loaded(tmp_path / "model", tokenizer)
    inspected = run_model("inspect", tmp_path / "model", cache_dir=tmp_path / "cache")
    assert isinstance(inspected.exception, ModelError)
    assert "loses characters" in str(inspected.exception)
    with pytest.raises(ModelError, match="loses characters"):
        Enricher.load(tmp_path / "model")


def test_a_tokenizer_that_fails_at_ordinary_text_is_refused(tmp_path: Path) -> None:
    """Every article with such a character would be a dead letter."""
    tokenizer = Tokenizer(models.Unigram([(piece, -1.0) for piece in PIECES]))
    with pytest.raises(ModelError, match=r"fails at ordinary text: .*token for unknown words"):
        loaded(tmp_path / "model", tokenizer)


def test_spaces_before_words_decide_nothing(tmp_path: Path) -> None:
    """SentencePiece's, wherever they are; but the sign for a space that is in the text is text."""
    tokenizer = spelling(splitter=pre_tokenizers.Metaspace())
    assert ["", "A", "", "b", "▁", "A"] == chars_of(loaded(tmp_path / "model", tokenizer), "A b▁A")
