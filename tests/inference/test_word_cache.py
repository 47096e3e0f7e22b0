"""Known words: the ids and positions of a text are the library's own, whatever is in it, and the cache is bounded."""

from __future__ import annotations

import json
import lzma
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pipeline.family_tokenizers import ARTICLES, ODD, samples
from support.models import MINILM_FOLDER
from tokenizers import AddedToken, Encoding, Regex, Tokenizer, normalizers, pre_tokenizers, processors

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.run.model import EMBEDDED_FOLDER
from enricher.worker.inference.tokenizer import word_cache
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer, EncodingSpans, SpacedSpans
from enricher.worker.inference.tokenizer.loading import SPACES
from enricher.worker.inference.tokenizer.word_cache import (
    LONGEST_CHARS,
    LONGEST_TOKENS,
    PlacedSpans,
    WordCache,
    splits_at_spaces,
)
from enricher.worker.records import Article, TokenizedArticle

DATA = Path(__file__).parent.parent / "data"
GOLD = Path(__file__).parents[2] / "enricher" / "models" / "gold"
ODDER = (
    *ODD,
    *("\u0345", "\u0344", "\u1161", "\u11a8", "가각", "\u200c", "\u0600", "\u0d4e", "\u0e33", "\u0eb3", "\uff9e", "\u3099"),
    *("\u20e3", "\ufe0f", "\U0001f3fb", "\x85", "\r", "\x0b", "\x1c", "\u1680", "\u180e", "\u202f", "\u2060", "ŉ", "ς", "№"),
    *("\uffff", "\U0010fffd", "\u0f73", "\u1e9b\u0323", "\U0001d15e", "x" * 70, " \n", "\u00a0\u0301", "\u00a0\uff9f"),
)  # fmt: skip


def _from(folder: Path, *, normalizer: Any = None, splitter: Any = None) -> Tokenizer:  # noqa: ANN401  no base of use
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.encode_special_tokens = True
    if normalizer is not None:
        backend.normalizer = normalizer
    if splitter is not None:
        backend.pre_tokenizer = splitter
    return backend


def _wordpiece(normalizer: Any = None, splitter: Any = None) -> Tokenizer:  # noqa: ANN401  as above
    return _from(MINILM_FOLDER, normalizer=normalizer, splitter=splitter)


def _unigram(normalizer: Any = None, splitter: Any = None) -> Tokenizer:  # noqa: ANN401  as above
    return _from(EMBEDDED_FOLDER, normalizer=normalizer, splitter=splitter)


def _xlm_r() -> Any:  # noqa: ANN401  as above
    """The normalizer of XLM-R: the table `nmt_nfkc` as sentencepiece 0.2 writes it into each model that it trains."""
    return normalizers.Precompiled(lzma.decompress((DATA / "texts" / "nmt_nfkc.xz").read_bytes()))


ACCEPTED = {
    "uncased WordPiece": _wordpiece(),
    "cased WordPiece": _wordpiece(normalizers.BertNormalizer(lowercase=False, strip_accents=False)),
    "WordPiece without a normalizer's help": _wordpiece(
        normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, lowercase=True)
    ),
    "WordPiece of a sequence": _wordpiece(
        normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]),
        pre_tokenizers.Whitespace(),
    ),
    "Unigram": _unigram(),
    "Unigram of NFKD": _unigram(normalizers.NFKD()),
    "Unigram of XLM-R": _unigram(normalizers.Sequence([_xlm_r(), normalizers.Replace(Regex(" {2,}"), " ")])),
}


def _cache(backend: Tokenizer) -> WordCache:
    def encode(text: str) -> Encoding:
        return backend.encode(text, add_special_tokens=False)

    return WordCache(encode, _spaces(backend))


def _spaces(backend: Tokenizer) -> list[int]:
    return [number for number in map(backend.token_to_id, SPACES) if number is not None]


def _taken(backend: Tokenizer, cache: WordCache, texts: list[str]) -> int:
    """The number of texts that the cache tokenized; fails if one of them has other ids or positions than the library's."""
    taken = 0
    expected = backend.encode_batch(texts, add_special_tokens=False)
    for text, found, encoding in zip(texts, cache.tokenize(texts), expected, strict=True):
        if found is None:
            continue
        taken += 1
        ids, spans = found
        assert encoding.ids == ids.tolist(), ascii(text)
        is_space = np.isin(ids, _spaces(backend))
        library = SpacedSpans(encoding, text, is_space) if is_space.any() else EncodingSpans(encoding)
        for token in range(len(ids)):
            assert library.chars_of(token) == spans.chars_of(token), ascii(text)
    return taken


def _ordinary() -> dict[str, list[str]]:
    def of(path: Path, *fields: str) -> list[str]:
        records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        return [record[field] for record in records for field in fields if isinstance(record[field], str)]

    return {
        "articles": of(ARTICLES, "title", "body"),
        "English": of(GOLD / "pud.jsonl", "text"),
        "German": of(GOLD / "de_pud.jsonl", "text"),
        "Chinese": of(GOLD / "zh_gsd.jsonl", "text"),
        "names": of(DATA / "texts" / "names.jsonl", "body"),
    }


def _odd(count: int, seed: int) -> list[str]:
    """Short texts of odd characters, words of news and any other characters, mostly without spaces between them."""
    dice = random.Random(seed)
    words = samples()[0].split(" ")
    ranges = [(0x20, 0x300), (0x300, 0x3000), (0x3000, 0xD800), (0xE000, 0x110000)]

    def part() -> str:
        kind = dice.random()
        if kind < 0.4:
            return dice.choice(ODDER)
        if kind < 0.5:
            return chr(dice.randrange(*dice.choice(ranges)))
        return dice.choice(words) if kind < 0.7 else dice.choice(["a", "e", ".", " ", "\n"])

    return [
        "".join(part() + dice.choice(["", "", " ", "  "]) for _ in range(dice.choice([1, 2, 3, 5, 12])))
        for _ in range(count)
    ]


@pytest.mark.parametrize("name", ["uncased WordPiece", "cased WordPiece", "Unigram"])
def test_ordinary_texts_have_the_librarys_tokens(name: str) -> None:
    """News and gold sentences, of new words and of known ones. The Chinese ones are left to the library."""
    backend = ACCEPTED[name]
    cache = _cache(backend)
    for kind, every in _ordinary().items():
        texts = every[::2]
        for _ in range(2):
            share = _taken(backend, cache, texts) / len(texts)
            # The texts about names are full of odd characters.
            assert share > 0.9 or kind == "names" if kind != "Chinese" else share < 0.1, kind


@pytest.mark.parametrize("backend", ACCEPTED.values(), ids=ACCEPTED)
def test_odd_characters_have_the_librarys_tokens(backend: Tokenizer) -> None:
    """Marks, joiners, controls, white space of all kinds and characters that are several words, beside spaces or not."""
    assert splits_at_spaces(backend)
    cache, texts = _cache(backend), _odd(3_000, seed=11)
    taken = sum(_taken(backend, cache, texts[first : first + 20]) for first in range(0, len(texts), 20))
    assert taken > 0.2 * len(texts)


def test_a_tokenizer_that_reads_beyond_spaces_is_caught() -> None:
    """The comparison fails for one whose first word of a text has other tokens."""
    backend = REFUSED["marks only a text's first word"]
    with pytest.raises(AssertionError):
        _taken(backend, _cache(backend), ["Angela Merkel in Berlin"])


def _with_added(token: AddedToken) -> Tokenizer:
    backend = _wordpiece()
    backend.add_tokens([token])
    return backend


def _with_processor(processor: Any) -> Tokenizer:  # noqa: ANN401  as above
    backend = _unigram()
    backend.post_processor = processor
    return backend


def _finding_specials() -> Tokenizer:
    backend = _wordpiece()
    backend.encode_special_tokens = False
    return backend


REFUSED = {
    "splits at its own sign only": _unigram(splitter=pre_tokenizers.Metaspace()),
    "marks only a text's first word": _unigram(
        splitter=pre_tokenizers.Sequence(
            [
                pre_tokenizers.WhitespaceSplit(),
                pre_tokenizers.Metaspace(prepend_scheme="first"),
            ]
        )
    ),
    "splits at punctuation first": _wordpiece(
        splitter=pre_tokenizers.Sequence([pre_tokenizers.Punctuation(), pre_tokenizers.WhitespaceSplit()])
    ),
    "replaces anything": _unigram(normalizers.Replace(Regex("a b"), "c")),
    "strips": _unigram(normalizers.Strip()),
    "looks for added words": _with_added(AddedToken("New York", normalized=False)),
    "looks for special tokens": _finding_specials(),
    "moves positions": _with_processor(processors.ByteLevel(trim_offsets=True)),
}


@pytest.mark.parametrize("backend", REFUSED.values(), ids=REFUSED)
def test_other_tokenizers_are_refused(backend: Tokenizer) -> None:
    """Whatever may read beyond a space, and whatever is not known not to."""
    assert not splits_at_spaces(backend)


@pytest.mark.parametrize("folder", [MINILM_FOLDER, EMBEDDED_FOLDER], ids=["WordPiece", "Unigram"])
def test_articles_are_tokenized_with_known_words(folder: Path) -> None:
    """Through the worker's tokenizer; an article with a word that is not kept is the library's, and its neighbours not."""
    tokenizer = ArticleTokenizer(Checkpoint.open(folder))
    bodies = ["Angela Merkel in Zürich", "x" * (LONGEST_CHARS + 1), "Rome"]
    results = tokenizer.tokenize([Article(body, "", body) for body in bodies])
    kinds = [isinstance(each.fields[1].spans, PlacedSpans) for each in results if isinstance(each, TokenizedArticle)]
    assert kinds == [True, False, True]


@pytest.mark.parametrize(("name", "char", "longest"), [
    ("uncased WordPiece", "\U000103a0", LONGEST_CHARS),  # a word of unknown letters is one token
    ("Unigram", "\ufdfa", LONGEST_TOKENS // 5),
])  # fmt: skip
def test_long_words_are_not_kept(name: str, char: str, longest: int) -> None:
    """The limits are on characters and on tokens, as one character can be several words."""
    backend = ACCEPTED[name]
    cache, others = _cache(backend), "Anna is in a town in a"
    assert _taken(backend, cache, [f"{others} {char * longest}"]) == 1
    assert _taken(backend, cache, [f"{others} {char * (longest + 1)}"]) == 0
    assert _taken(backend, cache, [others]) == 1


def test_nothing_is_kept_of_tokens_that_are_of_two_words() -> None:
    """The texts are the library's then."""
    backend = _unigram(splitter=pre_tokenizers.Metaspace(split=False))
    assert any(" " in "of the"[slice(*chars)] for chars in backend.encode("of the", add_special_tokens=False).offsets)
    assert _cache(backend).tokenize(["of the"]) == [None]


def test_words_that_are_not_read_again_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """With generations of four words; a word of the older one is known, and stays so if it is read."""
    monkeypatch.setattr(word_cache, "MOST_WORDS", 4)
    backend, learned = ACCEPTED["uncased WordPiece"], list[str]()

    def encode(text: str) -> Encoding:
        learned.extend(sorted(text.split()))
        return backend.encode(text, add_special_tokens=False)

    cache = WordCache(encode, [])
    for words in ("a b c d", "a e f", "a b g h", "a c"):
        _taken(backend, cache, [words])
    assert [*"abcd", *"ef", *"gh", "c"] == learned


def test_threads_may_share_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four at once get the library's tokens, while each makes generations end."""
    monkeypatch.setattr(word_cache, "MOST_WORDS", 50)
    backend, texts = ACCEPTED["uncased WordPiece"], _ordinary()["English"]
    cache = _cache(backend)
    with ThreadPoolExecutor(4) as pool:
        taken = sum(pool.map(lambda first: _taken(backend, cache, texts[first : first + 5]), range(0, 400, 5)))
    assert taken > 0.9 * 400
