"""Labelled tokens in CoNLL columns -> texts with entities. Knows neither files nor models.

A line for each token, the tag in the last column; an empty line after each sentence. The format does not have the text
itself, so the tokens are joined: by a space, and without one beside Chinese and Japanese characters.
Tags are read as those of a model are (`heads/labels.py`), in any scheme.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from enricher.errors import FatalError, ModelError
from enricher.worker.heads.labels import OUTSIDE, LabelScheme, label_names
from enricher.workshop.gate.scoring import EntitySpan

Sentence = tuple[Sequence[str], Sequence[str]]
"""The tokens, and a tag for each."""
_WITHOUT_SPACES = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f]")
"""Kana, Han, and the punctuation that goes with them."""


def conll_sentences(content: str, where: str) -> list[Sentence]:
    """The sentences of a file in columns. Skips `-DOCSTART-` and comments (`# `). Raises FatalError, with the line.

    A line with the number of columns and the tag of another line is no comment: its token is `#`.
    """
    lines = _columns(content)
    of_tokens = {(len(columns), columns[-1]) for columns in lines if columns and columns[0] != "#"}
    sentences, tokens, tags = list[Sentence](), list[str](), list[str]()
    for number, columns in enumerate([*lines, []], start=1):
        if not columns or columns[0] == "-DOCSTART-":
            if tokens:
                sentences.append((tokens, tags))
                tokens, tags = [], []
        elif columns[0] == "#" and not tokens and (len(columns), columns[-1]) not in of_tokens:
            continue
        elif len(columns) == 1:
            raise FatalError(
                f"{where}, line {number}: one column, where a token and its tag were expected. A gold set is JSON lines, or "
                f"CoNLL columns"
            )
        else:
            tokens.append(columns[0])
            tags.append(columns[-1])
    if sentences and all(tokens == [str(number + 1) for number in range(len(tokens))] for tokens, _ in sentences):
        raise FatalError(f"{where}: the first column only numbers the tokens. Remove it: the token is expected there")
    return sentences


def _columns(content: str) -> list[list[str]]:
    """The columns of each line, between tabs if the line has one, else between spaces; none if it is blank.

    Tokens may hold other spaces: a number often has a no-break space.
    """
    lines = []
    for line in io.StringIO(content, newline=None):
        columns = [column.strip() for column in line.rstrip().split("\t")]
        lines.append(columns if len(columns) > 1 else [column for column in columns[0].split(" ") if column])
    return lines


def texts_of(sentences: Sequence[Sentence], where: str) -> Iterator[tuple[str, tuple[EntitySpan, ...]]]:
    """The text and the entities of each sentence with a token. Raises FatalError if the tags cannot be read."""
    used = dict.fromkeys((OUTSIDE, *(tag for _, tags in sentences for tag in tags)))
    try:
        scheme = LabelScheme.from_labels(label_names(dict(enumerate(used))) if len(used) > 1 else (OUTSIDE,))
    except ModelError as error:
        raise FatalError(
            f"{where}: {str(error).replace('id2label', 'the tags').removeprefix('config.json: ')}"
        ) from error
    meanings = dict(zip(used, scheme.meanings, strict=True))
    for sentence in sentences:
        labelled = [(token.strip(), tag) for token, tag in zip(*sentence, strict=True) if token.strip()]
        if not labelled:
            continue
        tokens, tags = [token for token, _ in labelled], [tag for _, tag in labelled]
        starts = _starts(tokens)
        text = "".join(
            token.ljust(following - start) for token, (start, following) in zip(tokens, pairwise(starts), strict=True)
        ).rstrip()
        yield text, tuple(_entities(tokens, starts, [meanings[tag] for tag in tags]))


def _starts(tokens: Sequence[str]) -> Sequence[int]:
    """The offset at which each token begins in the text, and that of the next one."""
    starts = [0]
    for token, following in zip(tokens, [*tokens[1:], ""], strict=True):
        gap = not (_WITHOUT_SPACES.match(token[-1:]) or _WITHOUT_SPACES.match(following[:1]))
        starts.append(starts[-1] + len(token) + gap)
    return starts


def _entities(
    tokens: Sequence[str], starts: Sequence[int], meanings: Sequence[tuple[str, bool, bool]]
) -> Iterator[EntitySpan]:
    """Apply the rule of `heads/labels.py`, whose words are the tokens."""
    kind, start, end, closed = "", 0, 0, False
    for token, at, (its_kind, opens, closes) in zip(tokens, starts, meanings, strict=False):
        if kind and (its_kind != kind or opens or closed):
            yield EntitySpan("body", start, end, kind)
            kind = ""
        if its_kind and not kind:
            kind, start = its_kind, at
        end, closed = at + len(token), closes
    if kind:
        yield EntitySpan("body", start, end, kind)
