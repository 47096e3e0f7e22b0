"""A catalogue: JSON lines of a file or a folder, in memory, with an index of their names.

The lines stay the bytes that they are. Beside them are two arrays: the hashes of all names, folded in both steps and
sorted, and the position of each name's line. A name that is looked up is found by bisection, and the few lines with its hash
are parsed and compared. So a name takes 16 bytes beside its line, 32 if it ends with a legal form, and an entry 8. Python's
hash differs from process to process, which also keeps crafted names from sharing one.

With a `TextSearch` its names are also in tries (`name_tries.py`), to be found in texts.

Every line is checked before the catalogue is used, and the first that is wrong refuses all, with file and number. When a new
version is taken is not decided here (`live_catalogue.py`).
"""

from __future__ import annotations

import re
import stat
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import orjson

from enricher.errors import SettingsError
from enricher.worker.files.name_tries import NameTries
from enricher.worker.records import Article, CatalogueCard, Entity
from enricher.worker.rules.catalogue import Candidate, Entry, Mention, TextSearch, candidates_of
from enricher.worker.rules.text_search import new_entities

SUFFIX = ".jsonl"
"""The files of a folder that belong to its catalogue."""
MAX_BYTES = 1_000_000_000
MAX_NAMES = 5_000_000
MAX_LINE_BYTES = 65_536
MAX_NAMES_PER_ENTRY = 200
MAX_NAME_CHARS = 200
MAX_CONTEXT_WORDS = 20
MAX_LABELS = 20
MAX_CANDIDATES = 200
"""Entries with one name, after folding: namesakes of a person, branches of a company. A record lists them all for each
entity, and is bounded itself, so a hundred mentions of such a name still fit into a megabyte."""
_CACHED_CANDIDATES = 100_000
_CACHED_NAMES = 100_000
_READ_BYTES = 1 << 24
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_FIELDS = {"id", "name", "aliases", "label", "labels", "language", "context", "parent"}
_HEADER = {"generation", "entries"}

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
Version = tuple[tuple[str, int, int, int], ...]
"""The files of a catalogue with inode, time and size: if it is the same, so are the files."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file of a catalogue and where it begins in the text of all."""

    path: Path
    start: int


class CatalogueIndex:
    """A catalogue that was read and found good. Lookups are for one thread."""

    def __init__(self, files: CatalogueFiles, *, max_generation: int, search: TextSearch | None = None) -> None:
        """Check and index the lines of these files. Raises SettingsError, with file and line.

        `search`: which names are to be found in texts.
        """
        self._files, self.search = files, search
        self.version = files.version
        self.modified_s = files.modified_s
        """When its newest file was written, in seconds since the epoch."""
        lines = _Lines(files)
        tries = NameTries() if search else None
        for start, line in lines:
            entry = lines.add(start, line)
            if search and tries:
                tries.add(search.names_of(entry))
        lines.check_counts(max_generation)
        self.card = CatalogueCard(f"sha256:{sha256(files.text).hexdigest()}", lines.generation)
        self.entries, self.names = len(lines.starts), lines.names
        self._entry_starts = lines.starts
        self.labels = frozenset(lines.labels)
        """The labels that entries name."""
        self._hashes, self._starts = lines.sorted_names()
        self.tries = tries
        if search and tries:
            tries.build()
            if not tries.names:
                letters = f"a label and a name of at least {search.min_letters} letters"
                raise SettingsError(f"{files.files[0].path}: catalogue.find=text finds nothing: no entry has {letters}")
        # Not lru_cache, whose reference to this object would keep its memory until a full garbage collection.
        self._found = _Cache[tuple[str, str, str | None, bool], tuple[Candidate, ...]](_CACHED_CANDIDATES)
        self._labels = _Cache[tuple[str, str | None], str | None](_CACHED_CANDIDATES)
        self._entries = _Cache[int, Entry](_CACHED_NAMES)

    def new_entities(self, article: Article, entities: Sequence[Entity]) -> Iterator[Entity]:
        """The entities for names in the text, which the model did not find. For an index that was given a `search`."""
        assert self.tries
        return new_entities(article, entities, self.tries.lengths_at, partial(self._label_in, article.language))

    def _label_in(self, language: str | None, name: str) -> str | None:
        assert self.search
        asked = name, language
        if asked not in self._labels:
            self._labels.keep(asked, self.search.label_in(self.entries_of(Mention(name, "").keys), *asked), 1)
        return self._labels[asked]

    def find(self, text: str, label: str, language: str | None, *, any_label: bool = False) -> tuple[Candidate, ...]:
        """The candidates of an entity with this text and label, in an article of this language, in the file's order.

        `any_label`: also those for other labels, because no model gave this one.
        """
        asked = text, label, language, any_label
        found = self._found.get(asked)
        if found is None:
            mention = Mention(text, label)
            found = candidates_of(self.entries_of(mention.keys), mention, None if any_label else label, language)
            if len(text) <= MAX_NAME_CHARS:
                self._found.keep(asked, found, 1 + len(found))
        return found

    def entries_of(self, keys: set[str]) -> list[Entry]:
        """The entries with one of these names, folded in both steps, in the file's order.

        Entries are kept too: they may have 200 names each, and an article may have all of them, in a thousand spellings.
        """
        starts = set[int]()
        for key in keys:
            number = np.int64(hash(key))
            low, high = (int(np.searchsorted(self._hashes, number, side)) for side in ("left", "right"))
            starts.update(self._starts[low:high].tolist())
        found = list[Entry]()
        for start in sorted(starts):
            if start not in self._entries:
                entry = self._files.entry_at(start)
                self._entries.keep(start, entry, len(entry.names))
            found.append(self._entries[start])
        return found

    def __iter__(self) -> Iterator[Entry]:
        """All entries, in the file's order."""
        for start in self._entry_starts:
            yield self._files.entry_at(start)

    def shared_names(self) -> Iterator[list[Entry]]:
        """The entries that share a hash of a name, for each such name."""
        hashes = self._hashes
        bounds = np.flatnonzero(np.diff(hashes, prepend=hashes[:1] - 1, append=hashes[-1:] + 1))
        for first, last in pairwise(bounds.tolist()):
            if last - first > 1:
                yield [self._files.entry_at(start) for start in sorted(self._starts[first:last].tolist())]


class _Cache(dict[_Key, _Value]):
    """A dictionary that forgets all when its values would be larger than `most` together."""

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0

    def keep(self, key: _Key, value: _Value, size: int) -> None:
        """Add a value of this size."""
        self._size += size
        if self._size > self._most:
            self.clear()
            self._size = size
        self[key] = value


class CatalogueFiles:
    """The bytes of a catalogue's files, one after the other. They are read into memory, so nobody can change them."""

    def __init__(self, path: Path) -> None:
        """Read the files. Raises SettingsError, also if they changed meanwhile."""
        try:
            self.version = version_of(path)
            self.modified_s = max((time for _, _, time, _ in self.version), default=0) / 1e9
            self.text = bytearray()
            self.files: list[_File] = []
            for name, *_ in self.version:
                self.files.append(_File(Path(name), len(self.text)))
                with Path(name).open("rb", buffering=0) as file:
                    while part := file.read(_READ_BYTES):
                        self.text += part
                        if len(self.text) > MAX_BYTES:
                            raise SettingsError(f"{path}: a catalogue has at most {MAX_BYTES:,} bytes")
                if not self.text.endswith(b"\n"):
                    self.text += b"\n"
            changed = version_of(path) != self.version
        except OSError as error:
            raise SettingsError(f"{error.filename or path}: {error.strerror}") from error
        if changed:
            raise SettingsError(f"{path}: it changed while it was read")
        if not self.files:
            raise SettingsError(f"{path}: the folder has no file *{SUFFIX}")

    def entry_at(self, start: int) -> Entry:
        """The entry whose line begins at this position of the text. Raises WrongEntry."""
        return read_entry(self.text[start : self.text.find(b"\n", start)])

    def place(self, position: int) -> str:
        """The file and the line number of a position in the text."""
        file = max((each for each in self.files if each.start <= position), key=lambda each: each.start)
        line = self.text.count(b"\n", file.start, position) + 1
        return f"{file.path}:{line}"


def version_of(path: Path) -> Version:
    """The version of the file, or of the files `*.jsonl` of the folder, by name. Raises OSError, SettingsError."""
    names = sorted(each for each in path.iterdir() if each.suffix == SUFFIX) if path.is_dir() else [path]
    for each in names:
        if not stat.S_ISREG(each.stat().st_mode):
            raise SettingsError(f"{each}: not a file")
    stats = [(str(each), each.stat()) for each in names]
    return tuple((name, seen.st_ino, seen.st_mtime_ns, seen.st_size) for name, seen in stats)


class _Lines:
    """The lines of a catalogue as they are checked, and their names on the way to the index."""

    def __init__(self, files: CatalogueFiles) -> None:
        self._files = files
        self.generation = 0
        self._promised: list[tuple[int, int]] = []  # position and value of `entries`, with the entries before it
        self.names = 0
        self.labels: set[str] = set()
        self._ids, self.starts = array("q"), array("Q")
        self._hashes, self._name_starts = array("q"), array("Q")

    def __iter__(self) -> Iterator[tuple[int, bytearray]]:
        """Each line that is not blank, with its position. A file's first line may be its header."""
        text, first = self._files.text, {each.start for each in self._files.files}
        start = 0
        while start < len(text):
            end = text.find(b"\n", start)
            if end - start > MAX_LINE_BYTES:
                raise self._refusal(
                    start, f"the line has {end - start:,} bytes, at most {MAX_LINE_BYTES:,} are allowed"
                )
            line = text[start:end]
            if not (start in first and self._is_header(start, line)) and line.strip():
                yield start, line
            start = end + 1

    def _is_header(self, start: int, line: bytearray) -> bool:
        try:
            header = orjson.loads(line)
        except orjson.JSONDecodeError:
            return False
        if not isinstance(header, dict) or "id" in header or not header.keys() & _HEADER:
            return False
        if not all(name in _HEADER and type(value) is int and value >= 0 for name, value in header.items()):
            raise self._refusal(start, "a header has `generation` and `entries`, which are whole numbers")
        self.generation = max(self.generation, header.get("generation", 0))
        if "entries" in header:
            self._promised.append((start, header["entries"]))
        return True

    def add(self, start: int, line: bytearray) -> Entry:
        """Check a line, keep its names, and return its entry."""
        try:
            entry = read_entry(line)
        except WrongEntry as error:
            raise self._refusal(start, str(error)) from None
        keys = entry.keys
        if "" in keys:
            raise self._refusal(start, "a name has no characters that count")
        self.labels.update(entry.labels)
        self.names += len(entry.names)
        if self.names > MAX_NAMES:
            raise self._refusal(start, f"more than {MAX_NAMES:,} names")
        self._ids.append(hash(entry.id))
        self.starts.append(start)
        for key in keys:
            self._hashes.append(hash(key))
            self._name_starts.append(start)
        return entry

    def check_counts(self, max_generation: int) -> None:
        """Refuse what no single line shows: cut files, equal ids, and generations that are too high."""
        bounds = [*(each.start for each in self._files.files), len(self._files.text)]
        starts = np.frombuffer(self.starts, np.uint64)
        for start, promised in self._promised:
            end = min(each for each in bounds if each > start)
            counted = int(np.searchsorted(starts, np.uint64(end)) - np.searchsorted(starts, np.uint64(start)))
            if counted != promised:
                raise self._refusal(start, f"the header says {promised:,} entries, the file has {counted:,}")
        if not self._ids:
            raise self._refusal(0, "the catalogue has no entry")
        if self.generation > max_generation:
            raise self._refusal(0, f"generation {self.generation}; beside model.generation at most {max_generation}")
        ids = np.frombuffer(self._ids, np.int64)
        order = np.argsort(ids, kind="stable")
        for at in np.flatnonzero(ids[order][1:] == ids[order][:-1]).tolist():
            first, second = (self.starts[int(order[each])] for each in (at, at + 1))
            if self._files.entry_at(first).id == self._files.entry_at(second).id:
                raise self._refusal(second, f"the id of {self._files.place(first)} once more")

    def sorted_names(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
        """The hashes of all names, sorted, and the position of each name's line."""
        hashes, starts = np.frombuffer(self._hashes, np.int64), np.frombuffer(self._name_starts, np.uint64)
        order = np.argsort(hashes, kind="stable")
        hashes, starts = hashes[order], starts[order]
        crowded = np.flatnonzero(hashes[MAX_CANDIDATES:] == hashes[:-MAX_CANDIDATES])
        if len(crowded):
            start = int(starts[MAX_CANDIDATES:][crowded].min())
            raise self._refusal(
                start,
                f"one of its names is, folded, that of {MAX_CANDIDATES} entries before it: leave it out of the least known",
            )
        return hashes, starts

    def _refusal(self, position: int, reason: str) -> SettingsError:
        return SettingsError(f"catalogue {self._files.place(position)}: {reason}")


class WrongEntry(Exception):
    """A line of a catalogue that breaks a rule, which the message names."""


def read_entry(line: bytes | bytearray) -> Entry:
    """The entry of a line. Raises WrongEntry, whose message does not quote it."""
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise WrongEntry(f"not JSON in UTF-8: {error.msg}") from None
    if not isinstance(found, dict):
        raise WrongEntry("not a JSON object")
    if not found.keys() <= _FIELDS:
        raise WrongEntry(f"an unknown field; an entry has {', '.join(sorted(_FIELDS))}")
    name, label, labels = found.get("name"), found.get("label"), found.get("labels", ())
    if label is not None:
        if labels:
            raise WrongEntry("either label or labels, not both")
        labels = [label]
    aliases, language, parent = found.get("aliases", ()), found.get("language"), found.get("parent")
    if not isinstance(aliases, list | tuple):
        raise WrongEntry("aliases: not a list")
    (entry_id,) = _texts("id", [found.get("id")], 1)
    names = _texts("name and aliases", [name, *aliases], MAX_NAMES_PER_ENTRY)
    context = _texts("context", found.get("context", ()), MAX_CONTEXT_WORDS)
    _texts("language and parent", [each for each in (language, parent) if each is not None], 2)
    return Entry(entry_id, names, _texts("labels", labels, MAX_LABELS), language, context, parent)


def _texts(field: str, values: Any, most: int) -> tuple[str, ...]:  # noqa: ANN401  any JSON
    if not isinstance(values, list | tuple):
        raise WrongEntry(f"{field}: not a list")
    if len(values) > most:
        raise WrongEntry(f"{field}: {len(values)}, at most {most} are allowed")
    for value in values:
        if not isinstance(value, str) or not value or value.isspace():
            raise WrongEntry(f"{field}: not a text, or an empty one")
        if len(value) > MAX_NAME_CHARS:
            raise WrongEntry(f"{field}: {len(value):,} characters, at most {MAX_NAME_CHARS} are allowed")
        if not value.isprintable() and _CONTROL.search(value):
            raise WrongEntry(f"{field}: a control character")
    return tuple(values)
