"""The decoding rule once more, as it is promised and not as it is built: shares no code with the worker's decoding.

Slow and plain: lists of words (rules/word_rule.py), one at a time. Labels come with their reading, which is written down
here and not parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from rules.word_rule import is_alone, is_border, is_outside, is_punctuation, is_unseen, words
from tokenizers import Tokenizer

from enricher.worker.records import Float32Array


class Label(NamedTuple):
    """How a label is written in config.json, and what it means: outside, opening or going on, and of which kind."""

    written: str
    meaning: str
    kind: str = ""
    closes: bool = False


class Found(NamedTuple):
    """One entity of a text."""

    start: int
    end: int
    text: str
    kind: str
    score: float


def scheme(described: str) -> list[Label]:
    """`B-PER=+/PER I-PER=~/PER ...`, `+.` and `~.` if the label also closes; without a reading a label is outside."""
    labels = []
    for part in described.split():
        written, _, reading = part.partition("=")
        meaning, _, kind = reading.partition("/")
        read = {"": "outside", "+": "opens", "~": "goes on"}[meaning.removesuffix(".")]
        labels.append(Label(written, read, kind, closes=meaning.endswith(".")))
    return labels


IOB = "O B-PER=+/PER I-PER=~/PER B-ORG=+/ORG I-ORG=~/ORG B-LOC=+/LOC I-LOC=~/LOC"
BIOES = "O B-PER=+/PER I-PER=~/PER E-PER=~./PER S-PER=+./PER B-LOC=+/LOC S-LOC=+./LOC"
SUFFIXED = "PER-B=+/PER PER-I=~/PER O ORG-B=+/ORG ORG-I=~/ORG LOC-B=+/LOC LOC-I=~/LOC"
SCHEMES = {
    "IOB2": scheme(IOB),
    "IOB1": scheme("I-PER=~/PER I-ORG=~/ORG I-LOC=~/LOC B-LOC=+/LOC I-MISC=~/MISC B-MISC=+/MISC O"),
    "IO": scheme("O I-PER=~/PER I-ORG=~/ORG I-LOC=~/LOC I-MISC=~/MISC I-DATE=~/DATE I-TIME=~/TIME"),
    "kinds": scheme("O PER=~/PER ORG=~/ORG LOC=~/LOC MISC=~/MISC S-BAHN=~/S-BAHN TIME=~/TIME"),
    "BIOES": scheme(BIOES),
    "BILOU": scheme("B-PER=+/PER I-PER=~/PER L-PER=~./PER U-PER=+./PER U-LOC=+./LOC B-LOC=+/LOC O"),
    "BMES": scheme("O B-PER=+/PER M-PER=~/PER E-PER=~./PER S-PER=+./PER B-LOC=+/LOC E-LOC=~./LOC"),
    "suffixes": scheme(SUFFIXED),
    "BIOES suffixes": scheme("O PER_B=+/PER PER_I=~/PER PER_E=~./PER PER_S=+./PER LOC_B=+/LOC LOC_S=+./LOC"),
    "underscores": scheme(IOB.replace("-", "_")),
    "colons": scheme(IOB.replace("-", ":")),
    "full stops": scheme(BIOES.replace("-", ".")),
    "lower case": scheme(IOB.lower()),
    "padding": scheme("[PAD] B-a=+/a I-a=~/a S-a=+./a O B-b=+/b I-b=~/b"),
    "special tokens": scheme("O B-PER=+/PER I-PER=~/PER X [CLS] [SEP] B-LOC=+/LOC"),
}
"""Of seven labels each, as the reference models have."""


@dataclass(frozen=True)
class Tokens:
    """A text as its tokens, and where the library says that they are."""

    text: str
    ids: list[int]
    chars: list[tuple[int, int]]


def tokens_of(tokenizer: Tokenizer, text: str) -> Tokens:
    """What the tokenizer makes of the text. A token that is only a space has no character."""
    encoding = tokenizer.encode(text, add_special_tokens=False)
    spaces = {"▁", "Ġ"}
    chars = [
        (start, start) if token in spaces and text[start:end] not in spaces else (start, end)
        for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True)
    ]
    return Tokens(text, encoding.ids, chars)


def decisions(read: Tokens) -> list[tuple[tuple[int, int], int | None]]:
    """Each word of the text, and the token that decides its label, if any. Words of one token are one."""
    text = read.text
    places = [_place(text, start, end) for start, end in read.chars]
    found: list[tuple[tuple[int, int], int | None]] = []
    for start, end in words(text):
        if is_alone(text[start]):
            candidates = [token for token, (first, last) in enumerate(read.chars) if first <= start < last]
        else:
            candidates = [token for token, place in enumerate(places) if place is not None and start <= place < end]
        before = text[:start].rstrip("".join(filter(is_unseen, set(text[:start]))))
        if not candidates and text[start].isalnum() and before and not is_punctuation(before[-1]):
            candidates = [token for token, (first, last) in enumerate(read.chars) if first < start < last]
        token = candidates[0] if candidates else None
        if token is not None and found and found[-1] == ((found[-1][0][0], start), token):
            found[-1] = (found[-1][0][0], end), token
        else:
            found.append(((start, end), token))
    return found


def _place(text: str, start: int, end: int) -> int | None:
    """The first letter or digit of a token, else its first character that is in a word."""
    inside = [char for char in range(start, end) if not is_outside(text[char])]
    return next((char for char in inside if text[char].isalnum()), inside[0] if inside else None)


def entities(read: Tokens, labels: Sequence[Label], logits: Float32Array) -> list[Found]:
    """The entities of a text by the logits `[tokens, labels]` of its tokens.

    An entity begins at a word whose label opens one, and at one whose label goes on where the word before it is of no
    entity, is of another kind, closes its entity, or is beyond a border. Punctuation at its ends is no part of it. Its score
    is the mean of its words' probabilities.
    """
    exact = logits.astype(np.float64)
    shares = np.exp(exact - exact.max(axis=1, keepdims=True))
    best = (shares.max(axis=1) / shares.sum(axis=1)).tolist()
    runs: list[tuple[str, list[tuple[int, int, float]]]] = []
    previous, last = "", 0
    for (start, end), token in decisions(read):
        label = labels[int(np.argmax(logits[token]))] if token is not None else Label("", "outside")
        if label.meaning == "goes on" and previous == label.kind and not is_border(read.text[last:start]):
            runs[-1][1].append((start, end, best[token or 0]))
        elif label.meaning != "outside":
            runs.append((label.kind, [(start, end, best[token or 0])]))
        previous, last = "" if label.closes else label.kind, end
    found = (_found(read.text, kind, parts) for kind, parts in runs)
    return [each for each in found if each is not None]


def _found(text: str, kind: str, parts: list[tuple[int, int, float]]) -> Found | None:
    """`parts`: the words of a run, with the probability of each. None if only punctuation is in it."""
    while parts and not text[parts[0][0]].isalnum():
        del parts[0]
    while parts and not any(map(str.isalnum, text[parts[-1][0] : parts[-1][1]])):
        del parts[-1]
    if not parts:
        return None
    start, end = parts[0][0], parts[-1][1]
    return Found(start, end, text[start:end], kind, sum(score for _, _, score in parts) / len(parts))
