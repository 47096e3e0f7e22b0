"""The tokenizer: the ids that the model was made with, spans of each field, limits; special tokens are only text."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from inference.conftest import tokenized
from inference.test_loading import loaded
from support.models import MINILM_FOLDER
from support.patience import PATIENCE_S
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from enricher.errors import InvalidArticle
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.run.model import PreparedModel
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import Article, TokenizedArticle, TokenizedField, Window

Ours = Callable[..., ArticleTokenizer]

DATA = Path(__file__).parent.parent / "data"
GOLD = Path(__file__).parents[2] / "enricher" / "models" / "gold"
SENTENCES = [json.loads(line)["text"] for line in (GOLD / "pud.jsonl").read_text().splitlines()]


def _chars(part: TokenizedField) -> list[tuple[int, int]]:
    return [part.spans.chars_of(token) for token in range(len(part.ids))]


def test_the_ids_are_those_of_the_reference(tokenizer: ArticleTokenizer, pud_windows: list[Window]) -> None:
    """Ids of the body, between the tokenizer's own special tokens, are what transformers gives for the sentence."""
    results = tokenizer.tokenize([Article(str(index), "", text) for index, text in enumerate(SENTENCES)])
    for result, window in zip(results, pud_windows, strict=True):
        assert isinstance(result, TokenizedArticle)
        _, body = result.fields
        expected = (*tokenizer.specials_before, *body.ids.tolist(), *tokenizer.specials_after)
        assert window.ids.tolist() == list(expected)


def test_spans_count_code_points_within_their_own_field(tokenizer: ArticleTokenizer) -> None:
    """Emoji, accents and Han characters before a word do not shift its span, and the body begins at 0 again."""
    title, body = "🙂🙂 Zürich", "東京 was naïve, Zürich."
    result = tokenized(tokenizer, body, title)
    for part, text, expected in zip(
        result.fields, (title, body), (["Zürich"], ["東", "京", "was", "naïve", ",", "Zürich", "."]), strict=True
    ):
        assert expected == [text[start:end] for start, end in _chars(part)][-len(expected) :]


@pytest.mark.parametrize(
    ("title", "body"), [("", "Anna is in Zürich"), ("Anna is in Zürich", ""), (" ", "Zürich"), ("", "")]
)
def test_the_spans_of_a_field_are_right_beside_an_empty_one(tokenizer: ArticleTokenizer, title: str, body: str) -> None:
    """With no title, no body or a title of white space, the other's tokens are its own words; an empty one has none."""
    result = tokenized(tokenizer, body, title)
    assert [part.name for part in result.fields] == ["title", "body"]
    assert not result.truncated
    for part, text in zip(result.fields, (title, body), strict=True):
        assert text.split() == [text[start:end] for start, end in _chars(part)]


def test_a_text_that_the_library_refuses_costs_its_own_article_only(tokenizer: ArticleTokenizer) -> None:
    """A lone surrogate makes an InvalidArticle without the text in it; its neighbours are tokenised."""
    articles = [
        Article("1", "Berlin", "Paris"),
        Article("2", "Secret", "text \ud800"),
        Article("3", "", "Rome"),
    ]
    first, refused, last = tokenizer.tokenize(articles)
    assert isinstance(first, TokenizedArticle)
    assert isinstance(last, TokenizedArticle)
    assert isinstance(refused, InvalidArticle)
    assert refused.stage == "tokenize"
    assert not any(word in str(refused) for word in ("Secret", "text \ud800"))


def test_above_the_limit_the_body_is_cut_first(minilm: PreparedModel) -> None:
    """Ids are cut, the title stays whole as long as it fits, and the record says that it was cut."""
    tokenizer = ArticleTokenizer(minilm.checkpoint, max_article_tokens=5)
    title, body = (each for each in tokenized(tokenizer, "four five six", "one two three").fields)
    assert (len(title.ids), len(body.ids)) == (3, 2)
    assert _chars(body) == [(0, 4), (5, 9)]
    long_title = tokenized(tokenizer, "seven", "one two three four five six")
    assert [len(part.ids) for part in long_title.fields] == [5, 0]
    assert long_title.truncated
    assert not tokenized(tokenizer, "three four five", "one two").truncated


@pytest.mark.slow
def test_loading_opens_no_socket(tmp_path: Path) -> None:
    """In a fresh interpreter in which no socket connects, it loads, and the library's own threads are off."""
    script = f"""
import os, socket, sys
from pathlib import Path
def refuse(*_): raise AssertionError("a socket was opened")
socket.socket.connect = refuse
sys.path[:0] = [{str(Path(__file__).parents[2])!r}]
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
ArticleTokenizer(Checkpoint.open(Path({str(MINILM_FOLDER)!r})), max_article_tokens=9)
assert os.environ["TOKENIZERS_PARALLELISM"] == "false"
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]
LETTERS = "▁Aacdiknprsu</>مدحصلىاهعيو"
PIECES = [*SPECIALS, *LETTERS, "Anna", "Paris"]
NAMES = [*SPECIALS, "<mask>", "<custom>"]
NUMBERS = [("<s>", 0), ("</s>", 2)]


def unigram() -> Tokenizer:
    """As XLM-RoBERTa's and CamemBERT's are: the special tokens are pieces of the vocabulary, and one lies behind it."""
    tokenizer = Tokenizer(models.Unigram([(piece, -len(piece) / 100) for piece in PIECES], unk_id=3))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return with_specials(tokenizer)


def word_level() -> Tokenizer:
    """One that knows whole words only."""
    tokenizer = Tokenizer(models.WordLevel({piece: number for number, piece in enumerate(PIECES)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return with_specials(tokenizer)


def bpe() -> Tokenizer:
    """One that takes a whole word of its vocabulary before it merges, and whose merges make a special token."""
    merges = [("<", "s"), ("<s", ">"), ("A", "n"), ("An", "n"), ("Ann", "a")]
    pieces = [*PIECES, "<s", "An", "Ann"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return with_specials(tokenizer)


def with_specials(tokenizer: Tokenizer) -> Tokenizer:
    """The special tokens of these models, also one that takes the space before it, and one that is normalized."""
    tokenizer.add_special_tokens([*SPECIALS, AddedToken("<mask>", lstrip=True, special=True)])
    tokenizer.add_special_tokens([AddedToken("<custom>", normalized=True, special=True)])
    tokenizer.add_tokens(["Prius"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=NUMBERS)
    return tokenizer


def said() -> dict[str, str]:
    """What tokenizer_config.json says of them."""
    return {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>"}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Ours:
    """The worker's tokenizer, by what makes the model's and by the most tokens of an article. Each is made once."""

    @cache
    def opened(make: Callable[[], Tokenizer]) -> Checkpoint:
        folder = tmp_path_factory.mktemp("specials") / "model"
        loaded(folder, make(), family="xlm-roberta", **said())
        return Checkpoint.open(folder)

    @cache
    def made(make: Callable[[], Tokenizer], limit: int = 100) -> ArticleTokenizer:
        return ArticleTokenizer(opened(make), max_article_tokens=limit)

    return made


@pytest.mark.parametrize("around", ["{}", "Anna{}Paris", "Anna {} Paris", "{}Anna", "Anna{}", "{}{}"])
@pytest.mark.parametrize("make", [unigram, word_level, bpe])
def test_no_special_token_can_be_written(make: Callable[[], Tokenizer], around: str, ours: Ours) -> None:
    """Whatever the model: only the id of unknown words, which any word may have; and spans are those of the text."""
    tokenizer = ours(make)
    ids_of_specials = {tokenizer.pad_id, *tokenizer.specials_before, *tokenizer.specials_after}
    assert {0, 1, 2} == ids_of_specials
    beyond = {make().token_to_id("<mask>"), make().token_to_id("<custom>")}
    for name in NAMES:
        text = around.replace("{}", name)
        body = tokenized(tokenizer, text).fields[1]
        assert not (ids_of_specials | beyond) & set(body.ids.tolist())
        assert (0, len(text)) == (_chars(body)[0][0], _chars(body)[-1][1])


def test_a_special_token_in_a_text_is_spelled_out(ours: Ours) -> None:
    """As the model would spell any other word, and the entities around it keep their places."""
    body = tokenized(ours(unigram), "Anna</s>Paris").fields[1]
    spelled = ["▁", "Anna", "<", "/", "s", ">", "Paris"]
    assert [PIECES.index(piece) for piece in spelled] == body.ids.tolist()
    assert (8, 13) == body.spans.chars_of(6)


def test_added_tokens_that_are_not_special_stay(ours: Ours) -> None:
    """They are words that the model was given, with the ids that it was given them with."""
    assert unigram().token_to_id("Prius") == tokenized(ours(unigram), "Anna Prius").fields[1].ids[-1]


@pytest.mark.parametrize("limit", [*range(1, 16), 30])
def test_a_text_is_cut_where_a_word_ends(limit: int, ours: Ours) -> None:
    """Otherwise a name would be found that stands nowhere: the first half of one. What does not fit whole is left out."""
    title, body = "Anna Paris", "Annadica Parisaa \ufdfa"
    result = tokenized(ours(unigram, limit), body, title)
    assert result.truncated
    assert result.length_tokens <= limit
    kept = [max((end for _, end in _chars(part)), default=0) for part in result.fields]
    expected = [("", ""), ("Anna", ""), (title, ""), (title, "Annadica"), (title, "Annadica Parisaa")]
    place = (limit >= 2) + (limit >= 4) + (limit >= 10) + (limit >= 14)
    assert expected[place] == (title[: kept[0]].rstrip(), body[: kept[1]].rstrip())
