"""Catalogue entries and entities: which entries an entity may be, and which of them it is. Pure; nothing here guesses.

`Entry.match` decides about one entry and one text, by the folding of `folding.py`. `candidates_of` keeps the entries that
are for the entity's label and the article's language. `single_out` looks at all entities of an article and says `id` only
where one entry is left:

- `only`: no other entry has the name, not even one for another label, because models mistake labels; and the entry has no
  context words, which ask for one of them in the article, because namesakes that are in no catalogue exist;
- `context`: one candidate alone has a context word in the article;
- `related`: one candidate alone is an entry that another entity of the article is, its parent or its child;
- `surname`: the entity is one word, and the only person of that surname who was named in full before has an id.

`surname` goes before the other rules: a bare `Smith` after `Will Smith` is this person and no other Smith, also if he has
no id; and a bare `Will` has none. The index finds entries by their names (worker/files/catalogue_index.py).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from enricher.worker.heads.languages import Languages, canonical_tag
from enricher.worker.records import Article, Entity, hot_record
from enricher.worker.rules.folding import Spelling, fold, fold_loosely, split_legal_form, without_possessive

Match = Literal["name", "alias", "folded", "surname"]
"""How an entity's text matched an entry."""
Why = Literal["only", "context", "related", "surname"]
"""Why an entity is this entry."""

PERSONS = frozenset({"PER", "PERSON"})
ORGANISATIONS = frozenset({"ORG", "ORGANIZATION", "ORGANISATION", "COMPANY"})
MAX_IDS = 100_000
"""The most candidates of all entities of one article: a record with more takes megabytes before its size is looked at."""
_WORDS = re.compile(r"\w+")


@hot_record()
class Candidate:
    """An entry that an entity may be. `context`: its context words, each as `words_of` gives it."""

    id: str
    match: Match
    parent: str | None = None
    context: tuple[str, ...] = ()
    alone: bool = True
    """Whether no other entry has the name, whatever its labels, and this one asks for no context."""
    name: str = ""
    """The first of the entry's names."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a catalogue. `names`: its name, then its aliases. Without labels or language it is for all of them."""

    id: str
    names: tuple[str, ...]
    labels: Collection[str] = ()
    language: str | None = None
    context: tuple[str, ...] = ()
    parent: str | None = None
    folded: tuple[str, ...] = field(init=False, repr=False)
    """The names after the first step."""
    loose: set[str] = field(init=False, repr=False)
    """The names after both steps."""
    forms: Mapping[str, set[str]] = field(init=False, repr=False)
    """The names of an organisation after both steps without their legal form, each with the forms that it has."""

    def __post_init__(self) -> None:
        """Fold the names once: an entry may have 200, and articles spell one of them in many ways."""
        folded = tuple(map(fold, self.names))
        loose = set(map(fold_loosely, folded))
        forms: dict[str, set[str]] = {}
        for name, form in map(split_legal_form, loose if self.may_be_organisation else ()):
            forms.setdefault(name, set()).add(form)
        for name, value in (("folded", folded), ("loose", loose), ("forms", forms)):
            object.__setattr__(self, name, value)

    @property
    def keys(self) -> set[str]:
        """The texts under which an index finds the entry."""
        return {*self.loose, *self.forms}

    @property
    def may_be_organisation(self) -> bool:
        """Whether its names may end with a legal form."""
        return not self.labels or any(label.upper() in ORGANISATIONS for label in self.labels)

    def is_for(self, label: str | None, language: str | None) -> bool:
        """Whether an entity with this label (None: any), in an article of this language, may be the entry."""
        if self.labels and label is not None and label not in self.labels:
            return False
        return self.language is None or Languages(frozenset({canonical_tag(self.language)}), default=True).include(
            language
        )

    def match(self, mention: Mention) -> Match | None:
        """How the text matches one of the names; None if it matches none."""
        if mention.folded in self.folded:
            return "alias" if self.folded.index(mention.folded) else "name"
        same = not self.loose.isdisjoint(mention.keys) or any(
            name in self.forms and (not form or form in self.forms[name]) for name, form in mention.forms
        )
        return "folded" if same else None

    def candidate(self, match: Match, *, alone: bool) -> Candidate:
        """The entry as a candidate of an entity. `alone`: no other entry has the name."""
        context = tuple(words for each in self.context if (words := words_of(each)))
        return Candidate(self.id, match, self.parent, context, alone and not self.context, self.names[0])


class Mention:
    """The text of an entity, in each form that a name may have for it."""

    __slots__ = ("folded", "forms", "keys")

    def __init__(self, text: str, label: str) -> None:
        self.folded = fold(text)
        loose = {fold_loosely(self.folded), fold_loosely(without_possessive(self.folded))} - {""}
        is_organisation = label.upper() in ORGANISATIONS
        self.forms = [split_legal_form(each) for each in loose] if is_organisation else []
        """The name of an organisation without its legal form, with the form, which one side may lack."""
        self.keys = loose | {name for name, _ in self.forms}
        """The texts under which an index may have the name."""


def candidates_of(
    entries: Iterable[Entry], mention: Mention, label: str | None, language: str | None
) -> tuple[Candidate, ...]:
    """The candidates of an entity, in the order of the entries. `label`: None if the model gave none."""
    matched = [(entry, match) for entry in entries if (match := entry.match(mention))]
    alone = len(matched) == 1
    return tuple(entry.candidate(match, alone=alone) for entry, match in matched if entry.is_for(label, language))


@dataclass(frozen=True, slots=True)
class TextSearch:
    """Which names are found in the text of an article: of at least so many letters, of entries with one of the labels."""

    min_letters: int
    labels: Collection[str] | None = None

    def label_of(self, entry: Entry) -> str | None:
        """The label of entities that are found by the entry's names: its first; None for an entry that is for all labels."""
        return next((each for each in entry.labels if self.labels is None or each in self.labels), None)

    def names_of(self, entry: Entry) -> set[str]:
        """The names by which an entry is found, spelled as in `Spelling`."""
        if self.label_of(entry) is None:
            return set()
        # Most are as they are spelled, and a `Spelling` takes longer than all else.
        names = {
            each
            if each.isascii() and "`" not in each and each.split() == each.split(" ")
            else Spelling(each).text.strip()
            for each in entry.names
        }
        return {each for each in names if "\n" not in each and sum(map(str.isalnum, each)) >= self.min_letters}

    def label_in(self, entries: Iterable[Entry], name: str, language: str | None) -> str | None:
        """The label of the first entry that is found by a name, as `Spelling` has it, in an article of this language."""
        folded = fold(name)
        for entry in entries:
            # Of 200 names only the one with this folding is spelled.
            names = (each for each, its_folded in zip(entry.names, entry.folded, strict=True) if its_folded == folded)
            is_named = any(Spelling(each).text.strip() == name for each in names)
            if is_named and entry.is_for(None, language) and (label := self.label_of(entry)):
                return label
        return None


def words_of(text: str) -> str:
    """The words of a text after both steps of folding, between spaces; empty if it has none."""
    return " ".join(_WORDS.findall(fold_loosely(fold(text))))


def single_out(
    article: Article, entities: Sequence[Entity], candidates: Sequence[Sequence[Candidate]]
) -> dict[int, tuple[str, Why]]:
    """The entities that are one entry, by their index, each with the entry's id and why. `candidates`: of each entity."""
    # Several tasks list their entities one after the other.
    order = sorted(range(len(entities)), key=lambda i: (entities[i]["field"] != "title", entities[i]["start"]))
    context = _Context(article)
    chosen: dict[int, tuple[Candidate, Why]] = {}
    for i in order:
        if len(candidates[i]) == 1 and candidates[i][0].alone:
            chosen[i] = candidates[i][0], "only"
        elif len(left := [each for each in candidates[i] if context.has_one_of(each)]) == 1:
            chosen[i] = left[0], "context"
    surnames = _bare_surnames(entities, order, {i: each.id for i, (each, _) in chosen.items()})
    found: dict[int, tuple[str, Why]] = {i: (each.id, why) for i, (each, why) in chosen.items() if i not in surnames}
    known = [chosen[i][0] for i in found]
    ids, parents = {each.id for each in known}, {each.parent for each in known}
    for i in order:
        if i not in found and i not in surnames:
            related = [each for each in candidates[i] if each.id in ids or each.parent in ids or each.id in parents]
            if len(related) == 1:
                found[i] = related[0].id, "related"
    return found | {i: (person, "surname") for i, person in surnames.items() if person is not None}


def _bare_surnames(entities: Sequence[Entity], order: Sequence[int], ids: Mapping[int, str]) -> dict[int, str | None]:
    """The persons who are named by one word of a full name in the article, by their index, each with an id or None.

    The id is that of the one person whose full name came before, if this word is the surname in all full names before that
    have it. If full names with this word come only later, the other rules decide, provided that all of them have the id that
    these rules gave. `ids`: the ids that the other rules gave, by the entity's index.
    """
    words = {
        i: fold_loosely(without_possessive(fold(entities[i]["text"]))).split()
        for i in order
        if entities[i]["label"].upper() in PERSONS
    }
    everybody: dict[str, set[str | None]] = {}
    _add_names(everybody, words, ids)
    before: dict[str, set[str | None]] = {}
    found: dict[int, str | None] = {}
    for i, name in words.items():
        if len(name) > 1:
            _add_names(before, {i: name}, ids)
        elif name and (persons := before.get(name[0])):
            found[i] = next(iter(persons)) if len(persons) == 1 else None
        elif name and name[0] in everybody and (i not in ids or everybody[name[0]] != {ids[i]}):
            found[i] = None
    return found


def _add_names(persons: dict[str, set[str | None]], names: Mapping[int, Sequence[str]], ids: Mapping[int, str]) -> None:
    """Add full names under each of their words: under the surname the person's id, if known, and under other words None."""
    for i, words in names.items():
        for word in words[:-1] if len(words) > 1 else ():
            persons.setdefault(word, set()).add(None)
        if len(words) > 1:
            persons.setdefault(words[-1], set()).add(ids.get(i))


class _Context:
    """The words of an article, which are looked up only if an entity has several candidates."""

    def __init__(self, article: Article) -> None:
        self._article = article
        self._text = ""
        self._single: frozenset[str] = frozenset()
        self._known: dict[str, bool] = {}

    def has_one_of(self, candidate: Candidate) -> bool:
        """Whether the article has a context word of the candidate."""
        if candidate.context and not self._text:
            self._text = f" {words_of(f'{self._article.title} {self._article.body}')} "
            self._single = frozenset(self._text.split(" "))
        for words in candidate.context:
            # Phrases are searched only if all of their words are there, and once for all entries: an article may be long.
            if words not in self._known:
                self._known[words] = self._single.issuperset(words.split(" ")) and f" {words} " in self._text
            if self._known[words]:
                return True
        return False


def add_ids(
    article: Article, entities: Sequence[Entity], candidates: Sequence[Sequence[Candidate]]
) -> Mapping[tuple[str, str], int]:
    """Add `ids`, `id`, `catalogue_name` and `why` to the entities that have candidates, in place.

    Returns how many there were by label and outcome.
    """
    found = single_out(article, entities, candidates)
    names = {each.id: each.name for some in candidates for each in some}
    counts: dict[tuple[str, str], int] = {}
    for i, entity in enumerate(entities):
        ids: list[dict[str, Any]] = [{"id": each.id, "match": each.match} for each in candidates[i]]
        if i in found:
            entity_id, why = found[i]
            if all(each["id"] != entity_id for each in ids):
                ids.append({"id": entity_id, "match": "surname"})
            entity["ids"], entity["id"], entity["catalogue_name"], entity["why"] = ids, entity_id, names[entity_id], why
        elif ids:
            entity["ids"] = ids
        key = entity["label"], outcome_of(entity)
        counts[key] = counts.get(key, 0) + 1
    return counts


OUTCOMES = ("matched", "ambiguous", "unmatched", "found")


def outcome_of(entity: Mapping[str, Any]) -> str:
    """Whether an entity that was looked up has an `id` (matched), only `ids` (ambiguous), or neither (unmatched).

    Entities that the catalogue itself found in the text are `found`: they say nothing about those of the model.
    """
    if "source" in entity:
        return "found"
    return "matched" if "id" in entity else "ambiguous" if "ids" in entity else "unmatched"
