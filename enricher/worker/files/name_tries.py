"""The names of a catalogue as tries: which names are in a text at a position.

Why no automaton of Aho and Corasick: its links are for names that begin anywhere, but ours begin at words, where a trie
answers the same. For 5 million names `ahocorasick_rs` took 72 s and 2 GB, and held all other threads meanwhile; a succinct
trie (`marisa_trie`) took 8 s and 360 MB. It holds them too, so names are spread over many small ones: those of 5 million
names are built in 3.4 s, the longest pause was 0.3 s on a busy machine, and they take 27 MB.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from enricher.worker.rules.text_search import MAX_CHARS

_TRIES = 256
_FLAGS = 1 << 20
_KEY_CHARS = 3
MIN_LETTERS = _KEY_CHARS
"""The least that `catalogue.find_min_letters` may be."""


class NameTries:
    """Names are added, then the tries are built, then names are found.

    A name is in the trie that the hash of its first characters gives. Flags say for which hashes there is a name: most words
    of a text begin none.
    """

    def __init__(self) -> None:
        self._flags = bytearray(_FLAGS)
        self._texts = [bytearray() for _ in range(_TRIES)]
        self._tries: list[Any] = []
        self.names = self.size_bytes = 0

    def add(self, names: Iterable[str]) -> None:
        """Add names of at least `MIN_LETTERS` characters, without line breaks."""
        for name in names:
            if len(name) <= MAX_CHARS:
                number = hash(name[:_KEY_CHARS]) % _FLAGS
                self._flags[number] = True
                self._texts[number % _TRIES] += name.encode() + b"\n"

    def build(self) -> None:
        """Build the tries of all names."""
        import marisa_trie  # noqa: PLC0415  only for those who search texts

        texts, self._texts = self._texts, []
        texts.reverse()
        while texts:
            trie = marisa_trie.Trie(texts.pop().decode().split("\n")[:-1])
            self._tries.append(trie)
            self.names += len(trie)
            self.size_bytes += len(trie.tobytes())

    def lengths_at(self, text: str, start: int) -> Sequence[int]:
        """The lengths of all names that are in the text at this position, in increasing order."""
        number = hash(text[start : start + _KEY_CHARS]) % _FLAGS
        if not self._flags[number]:
            return ()
        return [len(name) for name in self._tries[number % _TRIES].prefixes(text[start : start + MAX_CHARS])]
