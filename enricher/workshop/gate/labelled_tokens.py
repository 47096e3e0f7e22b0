"""Labelled tokens, as other tools write them -> texts with entities. Knows neither files nor models.

| format | a sentence |
|---|---|
| CoNLL | a line for each token, in columns, the tag in the last one; an empty line after it |
| Hugging Face | a line `{"tokens": [...], "ner_tags": [...]}`, the tags as names or as numbers of names |

Neither has the text itself, so the tokens are joined: by a space, and without one beside Chinese and Japanese characters.
Tags are read as those of a model are (`heads/labels.py`), in any scheme.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import orjson

from enricher.errors import FatalError, ModelError
from enricher.worker.heads.labels import OUTSIDE, LabelScheme, label_names
from enricher.workshop.gate.scoring import EntitySpan

Sentence = tuple[Sequence[str], Sequence[str]]
"""The tokens, and a tag for each."""
INFO_FILE = "dataset_info.json"
"""The file in which the library `datasets` keeps the names of numbered tags."""
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


def hugging_face_sentence(line: Any, names: Sequence[str], where: str) -> Sentence:  # noqa: ANN401  any JSON
    """The sentence of a line. `names`: those of numbered tags, if known. Raises FatalError, which begins with `where`."""
    tokens, tags = (line.get("tokens"), line.get("ner_tags")) if isinstance(line, dict) else (None, None)
    if not (isinstance(tokens, list) and isinstance(tags, list) and all(isinstance(each, str) for each in tokens)):
        raise FatalError(f"{where}: `tokens` and `ner_tags` must be lists")
    if len(tokens) != len(tags):
        raise FatalError(f"{where}: {len(tokens)} tokens and {len(tags)} ner_tags")
    if all(isinstance(tag, str) for tag in tags):
        return tokens, tags
    if not names:
        raise FatalError(
            f"{where}: ner_tags are numbers, and nothing says their names: put {INFO_FILE} beside the file "
            f"(`dataset.info.write_to_directory(FOLDER)`)"
        )
    if unnamed := [tag for tag in tags if type(tag) is not int or not 0 <= tag < len(names)]:
        raise FatalError(f"{where}: {INFO_FILE} has no name for the tag {unnamed[0]!r}")
    return tokens, [names[tag] for tag in tags]


def tag_names(info: bytes) -> Sequence[str]:
    """The names of numbered `ner_tags` in the content of `dataset_info.json`; none if it has none."""
    try:
        names = orjson.loads(info)["features"]["ner_tags"]["feature"]["names"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ()
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else ()


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
