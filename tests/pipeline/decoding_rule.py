"""The decoding rule once more, as it is promised and not as it is built: shares no code with the worker's decoding.

Slow and plain: lists of words, one at a time. Labels come with their reading, which is written down here and not parsed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

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
class Words:
    """A text as its tokens, and these as words."""

    text: str
    ids: list[int]
    words: list[list[int]]
    chars: list[tuple[int, int]]


def words_of(tokenizer: Tokenizer, text: str) -> Words:
    """What the tokenizer makes of the text. Words that share a character are one word."""
    encoding = tokenizer.encode(text, add_special_tokens=False)
    chars = encoding.offsets
    words: list[list[int]] = []
    for _, group in groupby(range(len(chars)), key=encoding.word_ids.__getitem__):
        tokens = list(group)
        if words and chars[tokens[0]][0] < max(end for _, end in (chars[token] for token in words[-1])):
            words[-1] += tokens
        else:
            words.append(tokens)
    return Words(text, encoding.ids, words, chars)


def entities(read: Words, labels: Sequence[Label], logits: Float32Array) -> list[Found]:
    """The entities of a text by the logits `[tokens, labels]` of its tokens.

    The first token of a word decides for the word. An entity begins at a word whose label opens one, and at one whose label
    goes on where the word before it is of no entity, is of another kind, or closes its entity. Its score is the mean of its
    words' probabilities.
    """
    runs: list[tuple[str, list[int]]] = []
    previous = ""
    exact = logits.astype(np.float64)
    shares = np.exp(exact - exact.max(axis=1, keepdims=True))
    best = (shares.max(axis=1) / shares.sum(axis=1)).tolist()
    for number, tokens in enumerate(read.words):
        label = labels[int(np.argmax(logits[tokens[0]]))]
        if label.meaning == "goes on" and previous == label.kind:
            runs[-1][1].append(number)
        elif label.meaning != "outside":
            runs.append((label.kind, [number]))
        previous = "" if label.closes else label.kind
    found = (_found(read, kind, numbers, best) for kind, numbers in runs)
    return [each for each in found if each.text]


def _found(read: Words, kind: str, numbers: list[int], best: Sequence[float]) -> Found:
    """`best`: the probability of each token's label."""
    tokens = [token for number in numbers for token in read.words[number]]
    start, end = read.chars[tokens[0]][0], read.chars[tokens[-1]][1]
    while start < end and read.text[start].isspace():
        start += 1
    while start < end and read.text[end - 1].isspace():
        end -= 1
    score = sum(best[read.words[number][0]] for number in numbers) / len(numbers)
    return Found(start, end, read.text[start:end], kind, score)
