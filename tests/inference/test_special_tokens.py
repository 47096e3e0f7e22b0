"""Text is only text: special tokens that are written, characters that become several words, and articles that are cut."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from inference.test_loading import loaded
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors

from enricher.worker.heads.decoding import decode_entities
from enricher.worker.heads.labels import LabelScheme
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import Article, OwnedLabels, TokenizedArticle, TokenizedField

if TYPE_CHECKING:
    from collections.abc import Callable

    Ours = Callable[..., ArticleTokenizer]

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
        return ArticleTokenizer(opened(make), max_article_tokens=limit, too_long="truncate")

    return made


def body_of(tokenizer: ArticleTokenizer, text: str) -> TokenizedField:
    """A text's tokens."""
    (result,) = tokenizer.tokenize([Article("1", "", text)])
    assert isinstance(result, TokenizedArticle)
    return result.fields[1]


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
        body = body_of(tokenizer, text)
        assert not (ids_of_specials | beyond) & set(body.ids.tolist())
        ends = [body.spans.chars_of(token) for token in range(len(body.ids))]
        assert (0, len(text)) == (ends[0][0], ends[-1][1])


def test_a_special_token_in_a_text_is_spelled_out(ours: Ours) -> None:
    """As the model would spell any other word, and the entities around it keep their places."""
    body = body_of(ours(unigram), "Anna</s>Paris")
    spelled = ["▁", "Anna", "<", "/", "s", ">", "Paris"]
    assert [PIECES.index(piece) for piece in spelled] == body.ids.tolist()
    assert (8, 13) == body.spans.chars_of(6)


def test_added_tokens_that_are_not_special_stay(ours: Ours) -> None:
    """They are words that the model was given, with the ids that it was given them with."""
    assert unigram().token_to_id("Prius") == body_of(ours(unigram), "Anna Prius").ids[-1]


SCHEME = LabelScheme.from_labels(["O", "B-PER", "I-PER"])


def entities_of(tokenizer: ArticleTokenizer, text: str, label: int) -> list[tuple[int, int, str]]:
    """What is found where every token has this label."""
    article = Article("1", "", text)
    (tokens,) = tokenizer.tokenize([article])
    assert isinstance(tokens, TokenizedArticle)
    length = tokens.length_tokens
    labels = [OwnedLabels(0, np.full(length, label, np.int32), np.ones(length, np.float32))]
    return [(each["start"], each["end"], each["text"]) for each in decode_entities(article, tokens, labels, SCHEME)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\ufdfa", ["\ufdfa"]),
        ("Anna \ufdfa Paris", ["Anna", "\ufdfa", "Paris"]),
        ("Anna\ufdfaParis", ["Anna\ufdfaParis"]),
        ("\ufdfa\ufdfa Anna", ["\ufdfa\ufdfa", "Anna"]),
        ("Anna Paris", ["Anna", "Paris"]),
    ],
)
def test_tokens_of_one_character_make_one_entity(text: str, expected: list[str], ours: Ours) -> None:
    """U+FDFA is four words in Unicode's compatibility variant: as four entities they would stand in one place."""
    found = entities_of(ours(unigram), text, label=1)
    assert expected == [each for _, _, each in found]
    assert all(text[start:end] == each for start, end, each in found)
    assert all(end <= start for (_, end, _), (start, _, _) in pairwise(found))


@pytest.mark.parametrize("limit", [*range(1, 16), 30])
def test_a_text_is_cut_where_a_word_ends(limit: int, ours: Ours) -> None:
    """Otherwise a name would be found that stands nowhere: the first half of one. What does not fit whole is left out."""
    title, body = "Anna Paris", "Annadica Parisaa \ufdfa"
    (result,) = ours(unigram, limit).tokenize([Article("1", title, body)])
    assert isinstance(result, TokenizedArticle)
    assert result.truncated
    assert result.length_tokens <= limit
    kept = [chars_kept(part) for part in result.fields]
    expected = [("", ""), ("Anna", ""), (title, ""), (title, "Annadica"), (title, "Annadica Parisaa")]
    place = (limit >= 2) + (limit >= 4) + (limit >= 10) + (limit >= 14)
    assert expected[place] == (title[: kept[0]].rstrip(), body[: kept[1]].rstrip())


def chars_kept(part: TokenizedField) -> int:
    """Where the last token ends."""
    return part.spans.chars_of(len(part.ids) - 1)[1] if len(part.ids) else 0
