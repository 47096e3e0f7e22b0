"""Labelled text: read from JSON lines or CoNLL columns, and joined to form longer documents. Knows no model.

| labels | a line |
|---|---|
| entities | `{"id": ..., "text": ..., "entities": [{"start": ..., "end": ..., "label": ...}]}` |
| one class | `{"id": ..., "text": ..., "label": ...}` |
| any number of classes | `{"id": ..., "text": ..., "labels": [...]}` |
| none, for embeddings | `{"text": ...}` |

Offsets are half-open, in Unicode code points; other keys are ignored. enricher/models/gold/ has the built-in sets, one for
each of a few languages.

CoNLL has a line for each token, the tag in the last column, and an empty line after each sentence. It does not have the text
itself, so the tokens are joined: by a space, and without one beside Chinese and Japanese characters. Tags are read as those
of a model are (`heads/labels.py`), in any scheme.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, cycle, groupby, pairwise
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from enricher.errors import FatalError, ModelError
from enricher.worker.heads import HeadSpec
from enricher.worker.heads.labels import OUTSIDE, LabelScheme, label_names
from enricher.workshop.gate.scoring import EntitySpan

_FOLDER = Path(__file__).parents[2] / "models" / "gold"
DEFAULT_GOLD = _FOLDER / "pud.jsonl"
"""The built-in set in English."""
GOLD_BY_LANGUAGE = {"en": DEFAULT_GOLD, "de": _FOLDER / "de_pud.jsonl", "zh": _FOLDER / "zh_gsd.jsonl"}
"""The built-in sets, in the order in which a gate joins them."""
DOCUMENT_CHARS = (300, 800, 2000, 5000)
"""Lengths of joined documents: from a brief to a long article, of one window to about ten."""


@dataclass(frozen=True, slots=True)
class GoldText:
    """A text and what people found in it: entities, all in the field `body`, or classes."""

    text: str
    entities: tuple[EntitySpan, ...] = ()
    classes: frozenset[str] | None = None
    """Its classes by the labels of people; None if it has no labels."""
    source: str = ""
    """The name of its set, where several were joined."""


@dataclass(frozen=True, slots=True)
class GoldSet:
    """Labelled texts, and the digest (sha256, hex) of their file, or of the digests of several."""

    name: str
    digest: str
    texts: tuple[GoldText, ...]


class _Entity(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    start: int = Field(ge=0)
    end: int
    label: str = Field(min_length=1)


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    text: str = Field(min_length=1)


class _EntityLine(_Line):
    entities: list[_Entity]


class _ClassLine(_Line):
    label: str | None = Field(None, min_length=1)
    labels: list[str] | None = None


_Parsed = TypeVar("_Parsed", bound=_Line)


def read_gold(path: Path, labels: Collection[str] | None = None) -> GoldSet:
    """Texts with their entities. Raises FatalError, with line and field, if they cannot be used.

    `labels`: the labels that entities may have; None if any will do.
    """
    content, lines = _gold_lines(path)
    if not lines:
        raise FatalError(f"the gold set {path} is empty: a line of it is a JSON object with `text` and `entities`")
    if lines[0][1].lstrip().startswith(b"{"):
        texts = tuple(_read_entities(path, number, line, labels) for number, line in lines)
    else:
        where = f"the gold set {path}"
        try:
            sentences = conll_sentences(content.decode(), where)
        except UnicodeDecodeError as error:
            raise FatalError(f"{where} is not UTF-8") from error
        texts = tuple(GoldText(text, found) for text, found in texts_of(sentences, where))
        used = {entity.label for text in texts for entity in text.entities}
        if labels is not None and (unknown := sorted(used - {*labels})):
            raise FatalError(f"the gold set {path}: {_unknown(unknown[0], labels)}")
    if not any(text.entities for text in texts):
        raise FatalError(f"the gold set {path} has no entities, so it cannot measure anything")
    return GoldSet(path.stem, hashlib.sha256(content).hexdigest(), texts)


def read_classes(path: Path, head: HeadSpec) -> GoldSet:
    """Texts with their classes, which must be among those of the head. Raises FatalError."""
    content, lines = _gold_lines(path)
    return _gold_set(path, content, [_read_class(path, number, line, head) for number, line in lines])


def read_texts(path: Path) -> GoldSet:
    """Texts without labels. Raises FatalError."""
    content, lines = _gold_lines(path)
    return _gold_set(path, content, [GoldText(_parse(_Line, path, number, line).text) for number, line in lines])


def built_in_gold(languages: Collection[str]) -> GoldSet:
    """The built-in sets of these languages as one set; the English set if there is none. Raises FatalError."""
    known = [read_gold(path) for language, path in GOLD_BY_LANGUAGE.items() if language in languages]
    if len(known) < 2:
        return known[0] if known else read_gold(DEFAULT_GOLD)
    texts = tuple(replace(text, source=each.name) for each in known for text in each.texts)
    digest = hashlib.sha256("\n".join(each.digest for each in known).encode()).hexdigest()
    return GoldSet("+".join(each.name for each in known), digest, texts)


def join_texts(texts: Sequence[GoldText]) -> tuple[GoldText, ...]:
    """Adjacent texts of a set joined by spaces to documents, whose lengths are those of DOCUMENT_CHARS in turn."""
    return tuple(chain.from_iterable(_documents(each) for _, each in groupby(texts, key=lambda text: text.source)))


def _documents(texts: Iterable[GoldText]) -> list[GoldText]:
    documents: list[GoldText] = []
    waiting: list[GoldText] = []
    lengths = cycle(DOCUMENT_CHARS)
    wanted_chars = next(lengths)
    for text in texts:
        waiting.append(text)
        if sum(len(each.text) + 1 for each in waiting) >= wanted_chars:
            documents.append(_join(waiting))
            waiting, wanted_chars = [], next(lengths)
    return [*documents, *([_join(waiting)] if waiting else [])]


def _join(texts: Sequence[GoldText]) -> GoldText:
    entities: list[EntitySpan] = []
    first = 0
    for text in texts:
        entities += [EntitySpan(each.field, each.start + first, each.end + first, each.label) for each in text.entities]
        first += len(text.text) + 1
    return GoldText(" ".join(text.text for text in texts), tuple(entities), source=texts[0].source)


def _gold_lines(path: Path) -> tuple[bytes, list[tuple[int, bytes]]]:
    """The content of a gold set's file, and its lines that are not empty, with their numbers. Raises FatalError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FatalError(f"the gold set {path} cannot be read: {error.strerror}") from error
    content = content.removeprefix(codecs.BOM_UTF8)
    return content, [(number, line) for number, line in enumerate(content.splitlines(), start=1) if line.strip()]


def _parse(kind: type[_Parsed], path: Path, number: int, line: bytes) -> _Parsed:
    """Parse a line. Raises FatalError, without text of the line."""
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        problem = error.errors(include_input=False)[0]
        where = ".".join(str(part) for part in problem["loc"]) or "the line"
        raise FatalError(f"the gold set {path}, line {number}: {where}: {problem['msg']}") from error


def _read_entities(path: Path, number: int, line: bytes, labels: Collection[str] | None) -> GoldText:
    parsed = _parse(_EntityLine, path, number, line)
    for problem in _problems(parsed, labels):
        raise FatalError(f"the gold set {path}, line {number}: {problem}")
    return GoldText(
        parsed.text, tuple(EntitySpan("body", each.start, each.end, each.label) for each in parsed.entities)
    )


def _unknown(label: str, labels: Collection[str]) -> str:
    return (
        f"no model has the label {label!r}; known are {', '.join(labels)}. Give its entities one of these, or leave them "
        f"out (as tags: O)"
    )


def _problems(parsed: _EntityLine, labels: Collection[str] | None) -> Iterator[str]:
    """Problems with the entities of a line; each names the field first."""
    for index, entity in enumerate(parsed.entities):
        if not entity.start < entity.end <= len(parsed.text):
            yield f"entities.{index}: [{entity.start}, {entity.end}) is not a span of its text"
        if labels is not None and entity.label not in labels:
            yield f"entities.{index}.label: {_unknown(entity.label, labels)}"
    in_order = sorted(enumerate(parsed.entities), key=lambda each: each[1].start)
    for (index, entity), (following, other) in pairwise(in_order):
        if other.start < entity.end:
            yield f"entities.{following}: it overlaps entities.{index}"


def _gold_set(path: Path, content: bytes, texts: list[GoldText]) -> GoldSet:
    if not texts:
        raise FatalError(f"the gold set {path} has no texts, so it cannot measure anything")
    return GoldSet(path.stem, hashlib.sha256(content).hexdigest(), tuple(texts))


def _read_class(path: Path, number: int, line: bytes, head: HeadSpec) -> GoldText:
    parsed = _parse(_ClassLine, path, number, line)
    if (parsed.label is None) == (parsed.labels is None):
        raise FatalError(f"the gold set {path}, line {number}: expected one of `label` and `labels`")
    classes = frozenset([parsed.label] if parsed.label is not None else parsed.labels or [])
    if unknown := sorted(classes - set(head.labels)):
        raise FatalError(
            f"the gold set {path}, line {number}: the model has no class {unknown[0]!r}; it has {', '.join(head.labels)}"
        )
    if not head.multi_label and len(classes) != 1:
        raise FatalError(f"the gold set {path}, line {number}: {len(classes)} classes, and the model gives exactly one")
    return GoldText(parsed.text, classes=classes)


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
