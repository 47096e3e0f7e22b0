"""Makes the int8 recipe of a model from unlabelled articles: reads and samples the articles, and shows the progress.

It refuses articles that share sentences with the gold set, because the gate would then judge int8 by its own calibration. It
finds copies of sentences, paragraphs, lines and whole texts, also wrapped ones, ignoring case, spaces and punctuation. It
finds no paraphrase, no part of a sentence and, within a longer text, no short sentence.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.markup import escape

from enricher.errors import FatalError, InvalidArticle, SettingsError
from enricher.worker.articles import ArticleReader
from enricher.worker.commands.console import Ticker, remark_console
from enricher.worker.files import Line, read_lines
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.hardware import available_cores
from enricher.worker.inference.graph.int8 import Recipe, TextsFile, write_recipe
from enricher.worker.inference.run.advice import default_cutter
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import Article, Partition, RawRecord, Skipped, Ticket, TokenizedArticle, Tombstone, Window
from enricher.worker.settings import load_settings
from enricher.worker.wiring.formats import line_reader
from enricher.workshop.gate.gold import GoldSet
from enricher.workshop.int8_recipe import (
    DEFAULT_TARGET,
    HELD_OUT_TOKENS,
    OBSERVED_TOKENS,
    calibrate,
    divide,
)

DEFAULT_TEXTS = Path(__file__).parents[1] / "models" / "articles" / "wikinews.jsonl"
SEED = 0
"""The seed of every draw: the same texts give the same int8 on the same kind of machine."""
SAMPLED_ARTICLES = 500
"""Many more articles than calibration reads. A larger file is sampled, so that memory is bounded."""
MOST_TOKENS = 4 * (OBSERVED_TOKENS + HELD_OUT_TOKENS)
"""The most tokens that are kept, so that memory is bounded. A multiple of what is used, because whole articles are held
out."""
MOST_LINE_BYTES = 128 * 2**20
"""The limit that `enricher enrich` has too."""

_TEXTS = Partition("calibration", 0)
_OTHERS = "choose another --gold, or --precision bf16"


@dataclass(frozen=True, slots=True)
class Texts:
    """Articles to calibrate on: a sample of a file, and what the recipe says about the file."""

    file: TextsFile
    articles: tuple[Article, ...]


def read_texts(path: Path | None, gold: GoldSet) -> Texts:
    """Read `path`, by default the sample articles.

    Raises FatalError, with the line, for a file that cannot be used, and SettingsError if it shares sentences with `gold`.
    """
    chosen = path or DEFAULT_TEXTS
    known = sentences_of(text.text for text in gold.texts)
    sample, draw, shared, number = list[Article](), np.random.default_rng(SEED), list[int](), 0
    digest = _digest_of(chosen)
    for line, article in _articles(chosen):
        if _is_shared(article, known):
            shared.append(line)
        number += 1
        if len(sample) < SAMPLED_ARTICLES:
            sample.append(article)
        elif (place := int(draw.integers(number))) < SAMPLED_ARTICLES:
            sample[place] = article
    if shared:
        raise SettingsError(_overlap(chosen, gold, shared, given=path is not None))
    return Texts(TextsFile(name=chosen.stem, digest=digest, number=number), tuple(sample))


def windows_of(checkpoint: Checkpoint, texts: Texts) -> list[Window]:
    """The windows that a worker would cut, from articles in random order, until they have more than `MOST_TOKENS`.

    Raises ModelError if they are too few to calibrate with.
    """
    tokenizer = ArticleTokenizer(checkpoint)
    cutter = default_cutter(checkpoint.folder, tokenizer)
    windows: list[Window] = []
    tokens = 0
    for index in np.random.default_rng(SEED).permutation(len(texts.articles)):
        article = texts.articles[index]
        (found,) = tokenizer.tokenize([article])
        if isinstance(found, TokenizedArticle):  # an article that the tokenizer refuses has no windows
            ticket = Ticket(RawRecord(_TEXTS, 0, None, None), 0.0, article=article)
            windows.extend(cutter.cut(ticket, found, 0.0))
            tokens = sum(window.length_tokens for window in windows)
        if tokens > MOST_TOKENS:
            break
    divide(windows, SEED)
    return windows


def make_recipe(checkpoint: Checkpoint, texts: Texts, windows: Sequence[Window], *, scratch: Path) -> Recipe:
    """Calibrate int8 for `checkpoint` and write the recipe into its folder. Blocks for seconds to minutes.

    Raises ModelError.
    """
    console = remark_console()
    with Ticker(console) as ticker:
        recipe = calibrate(
            checkpoint,
            windows,
            seed=SEED,
            texts=texts.file,
            threads=available_cores(),
            progress=lambda stage, done, of: ticker.tick(lambda: f"calibrating int8, {stage}: {done:,} of {of:,}"),
            target=DEFAULT_TARGET,
            scratch=scratch,
        )
    write_recipe(checkpoint.folder, recipe)
    for line in recipe_lines(recipe):
        console.print(escape(line))
    return recipe


class CalibratedOnGold(SettingsError):
    """int8 cannot be judged by a gold set that it was calibrated on; other precisions can."""


def refuse_calibration_texts(recipe: Recipe, gold: GoldSet) -> None:
    """Raise CalibratedOnGold if the recipe was calibrated on `gold`, as far as that can be seen.

    The recipe names its texts only by a digest; if these are the sample articles, their sentences are compared.
    """
    if recipe.texts.digest == gold.digest:
        message = f"int8 was calibrated on the gold set {gold.name} itself, which cannot judge it: {_OTHERS}"
        raise CalibratedOnGold(message)
    if recipe.texts.digest == _digest_of(DEFAULT_TEXTS):
        known = sentences_of(text.text for text in gold.texts)
        shared = [line for line, article in _articles(DEFAULT_TEXTS) if _is_shared(article, known)]
        if shared:
            message = (
                f"int8 was calibrated on the sample articles, which share sentences with the gold set {gold.name} (line "
                f"{shared[0]} of {DEFAULT_TEXTS}), so this gold set cannot judge it: {_OTHERS}"
            )
            raise CalibratedOnGold(message)


def recipe_lines(recipe: Recipe) -> Iterator[str]:
    """Lines for people: what was quantised, on which texts it was calibrated, and what was not quantised."""
    texts, measured, products = recipe.texts, recipe.measured, len(recipe.products)
    yield (
        f"int8: {products} of {products + len(recipe.kept)} products of the encoder, calibrated on {texts.number:,} texts "
        f"of {texts.name} (seed {recipe.seed}); {100 * measured.equal_labels:.2f} % of labels equal to fp32 on "
        f"{measured.windows:,} windows that were held out"
    )
    if measured.missed:
        yield f"  warning: {measured.missed}: `--precision auto` does not take this int8"
    for kept in recipe.kept:
        yield f"  in higher precision: {kept.name} ({kept.reason})"


def _articles(path: Path) -> Iterator[tuple[int, Article]]:
    """Line numbers, from 1, and articles."""
    settings = load_settings(log_files=False)
    # The settings say where the fields of other articles are; the sample articles are ours.
    reader = line_reader(settings, mapped=path != DEFAULT_TEXTS)
    try:
        with path.open("rb") as file:
            for line in read_lines(file, str(path), max_line_bytes=MOST_LINE_BYTES):
                if isinstance(line, Line) and isinstance(article := _read_article(path, line, reader), Article):
                    yield line.number + 1, article
    except OSError as error:
        message = f"the texts to calibrate on, {path}, cannot be read: {error.strerror}"
        raise FatalError(message) from error


def _digest_of(path: Path) -> str:
    """The digest of a file, which is read again afterwards: a pipe could not be. Raises FatalError."""
    if not path.is_file():
        raise FatalError(f"the texts to calibrate on, {path}, cannot be read: there is no such file, or it is none")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_article(path: Path, line: Line, reader: ArticleReader) -> Article | Tombstone | Skipped:
    try:
        return reader.read(RawRecord(_TEXTS, line.number, None, line.value))
    except InvalidArticle as error:
        message = f"{path}, line {line.number + 1}: not an article: {error}. Correct or remove the line."
        raise FatalError(message) from error


def _is_shared(article: Article, known: frozenset[int]) -> bool:
    return any(shares_sentence(text, known) for text in (article.title, article.body))


def _overlap(path: Path, gold: GoldSet, lines: list[int], *, given: bool) -> str:
    what = f"{path}" if given else "the sample articles, which int8 is calibrated on by default,"
    more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    advice = f"Remove those lines from {path}" if given else "Name other articles with --calibrate"
    return (
        f"{what} and the gold set {gold.name} share sentences (line {lines[0]}{more}): the gate would judge int8 by the "
        f"text that it was calibrated on. {advice}, or choose another gold set."
    )


LEAST_CHARS = 24
"""The fewest letters and digits of a sentence that counts: shorter ones ("He declined to comment.") occur in unrelated
texts. Whole texts may be shorter."""
LEAST_CHARS_CJK = 8
"""The same for scripts in which a letter is a syllable or a word."""
_CLOSING = r"""["'”’»」』）)\]]*"""
_SENTENCE_END = re.compile(rf"(?<=[.!?]){_CLOSING}\s+|(?<=[。！？]){_CLOSING}")
_PARAGRAPH_END = re.compile(r"\n\s*\n")
_NOT_WORDS = re.compile(r"[\W_]+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def sentences_of(texts: Iterable[str]) -> frozenset[int]:
    """The sentences of `texts` as hashes, which are valid in this process only."""
    return frozenset(sentence for text in texts for sentence in _sentences(text))


def shares_sentence(text: str, sentences: frozenset[int]) -> bool:
    """True if a sentence of `text`, or the whole of it, is among `sentences`."""
    return any(sentence in sentences for sentence in _sentences(text))


def _sentences(text: str) -> Iterator[int]:
    if whole := _letters(text):
        yield hash(whole)
    for part in _parts(text):
        letters = _letters(part)
        if len(letters) >= (LEAST_CHARS_CJK if _CJK.search(letters) else LEAST_CHARS):
            yield hash(letters)


def _parts(text: str) -> Iterator[str]:
    """Paragraphs and lines, and the sentences of both: a line break may be in a wrapped sentence, or after a headline."""
    for block in (*_PARAGRAPH_END.split(text), *text.splitlines()):
        yield block
        yield from _SENTENCE_END.split(block)


def _letters(text: str) -> str:
    return _NOT_WORDS.sub("", unicodedata.normalize("NFKC", text).casefold())
