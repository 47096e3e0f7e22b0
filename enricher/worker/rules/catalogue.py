"""Catalogue entries and entities: which entries an entity may be, and which of them it is. Pure; nothing here guesses.

`Entry.match` decides about one entry and one text, by the folding of `folding.py`. `single_out` looks at all entities of an
article and says `id` only where one entry is left:

- `only`: the entity has one candidate;
- `context`: of several candidates one alone has a context word in the article;
- `related`: of several candidates one alone is an entry that another entity of the article is, its parent or its child;
- `surname`: the entity is one word, and the only person of that surname who was named in full before has an id.

The last rule comes first: a bare `Smith` after `Will Smith` is this person, known or not, never another Smith.
Finding entries by their names is the index's matter (worker/files/catalogue_index.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from enricher.worker.heads.languages import Languages, canonical_tag
from enricher.worker.records import Article, Entity, hot_record
from enricher.worker.rules.folding import fold, fold_loosely, split_legal_form, without_possessive

Match = Literal["name", "alias", "folded", "surname"]
"""How an entity's text matched an entry."""
Why = Literal["only", "context", "related", "surname"]
"""Why an entity is this entry."""

PERSONS = frozenset({"PER", "PERSON"})
ORGANISATIONS = frozenset({"ORG", "ORGANIZATION", "ORGANISATION", "COMPANY"})
_WORDS = re.compile(r"\w+")


@hot_record()
class Candidate:
    """An entry that an entity may be. `context`: its context words, each as `words_of` gives it."""

    id: str
    match: Match
    parent: str | None = None
    context: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a catalogue. `names`: its name, then its aliases. Without labels or language it is for all of them."""

    id: str
    names: tuple[str, ...]
    labels: frozenset[str] = frozenset()
    language: str | None = None
    context: tuple[str, ...] = ()
    parent: str | None = None

    @property
    def may_be_organisation(self) -> bool:
        """Whether its names may end with a legal form."""
        return may_be_organisation(self.labels)

    def is_for(self, label: str, language: str | None) -> bool:
        """Whether an entity with this label, in an article of this language, may be the entry."""
        if self.labels and label not in self.labels:
            return False
        return self.language is None or Languages(frozenset({canonical_tag(self.language)}), default=True).include(
            language
        )

    def match(self, mention: Mention) -> Match | None:
        """How the text matches one of the names; None if it matches none."""
        folded = [fold(name) for name in self.names]
        if mention.folded in folded:
            return "alias" if folded.index(mention.folded) else "name"
        same = any(mention.is_name(fold_loosely(each), legal=self.may_be_organisation) for each in folded)
        return "folded" if same else None

    def candidate(self, match: Match) -> Candidate:
        """The entry as a candidate of an entity."""
        return Candidate(
            self.id, match, self.parent, tuple(words for each in self.context if (words := words_of(each)))
        )


def may_be_organisation(labels: frozenset[str]) -> bool:
    """Whether names of an entry with these labels may end with a legal form."""
    return not labels or any(label.upper() in ORGANISATIONS for label in labels)


def name_keys(name: str, *, legal: bool) -> set[str]:
    """The texts under which an index finds a name: after both steps, and also without its legal form."""
    loose = fold_loosely(fold(name))
    return {loose, split_legal_form(loose)[0]} if legal else {loose}


class Mention:
    """The text of an entity, in each form that a name may have for it."""

    __slots__ = ("_forms", "_organisation", "folded", "keys")

    def __init__(self, text: str, label: str) -> None:
        self.folded = fold(text)
        loose = {fold_loosely(self.folded), fold_loosely(without_possessive(self.folded))} - {""}
        self._organisation = label.upper() in ORGANISATIONS
        self._forms = [split_legal_form(each) if self._organisation else (each, "") for each in loose]
        self.keys = loose | {name for name, _ in self._forms}
        """The texts under which an index may have the name."""

    def is_name(self, loose: str, *, legal: bool) -> bool:
        """Whether a name, folded in both steps, is this text. Of legal forms one may be missing, but they may not differ."""
        name, form = split_legal_form(loose) if legal and self._organisation else (loose, "")
        return loose in self.keys or any(
            name == mine and (not form or not my_form or form == my_form) for mine, my_form in self._forms
        )


def words_of(text: str) -> str:
    """The words of a text after both steps of folding, between spaces; empty if it has none."""
    return " ".join(_WORDS.findall(fold_loosely(fold(text))))


def single_out(
    article: Article, entities: Sequence[Entity], candidates: Sequence[Sequence[Candidate]]
) -> dict[int, tuple[str, Why]]:
    """The entities that are one entry, by their index, each with the entry's id and why. `candidates`: of each entity."""
    # Several tasks list their entities one after the other.
    order = sorted(range(len(entities)), key=lambda i: (entities[i]["field"] != "title", entities[i]["start"]))
    bare = _bare_surnames(entities, order)
    found: dict[int, tuple[str, Why]] = {}
    known: list[Candidate] = []
    open_: list[int] = []
    context = _Context(article)
    for i in order:
        if i in bare or not candidates[i]:
            continue
        if len(candidates[i]) == 1:
            left, why = [*candidates[i]], "only"
        else:
            left, why = [each for each in candidates[i] if context.has_one_of(each)], "context"
        if len(left) == 1:
            found[i] = left[0].id, why  # type: ignore[assignment]  # one of the two texts
            known.append(left[0])
        else:
            open_.append(i)
    ids, parents = {each.id for each in known}, {each.parent for each in known}
    for i in open_:
        left = [each for each in candidates[i] if each.id in ids or each.parent in ids or each.id in parents]
        if len(left) == 1:
            found[i] = left[0].id, "related"
    for i, earlier in bare.items():
        persons = {found[j][0] if j in found else None for j in earlier}
        if len(persons) == 1 and (person := persons.pop()) is not None:
            found[i] = person, "surname"
    return found


def _bare_surnames(entities: Sequence[Entity], order: Sequence[int]) -> dict[int, list[int]]:
    """The persons named by one word, each with the entities before it that name a person with this last word in full."""
    full: dict[str, list[int]] = {}
    bare: dict[int, list[int]] = {}
    for i in order:
        if entities[i]["label"].upper() in PERSONS:
            words = fold_loosely(without_possessive(fold(entities[i]["text"]))).split()
            if len(words) > 1:
                full.setdefault(words[-1], []).append(i)
            elif words and words[0] in full:
                bare[i] = [*full[words[0]]]
    return bare


class _Context:
    """The words of an article, which are looked up only if an entity has several candidates."""

    def __init__(self, article: Article) -> None:
        self._article = article
        self._text = ""
        self._single: frozenset[str] = frozenset()
        self._known: dict[str, bool] = {}

    def has_one_of(self, candidate: Candidate) -> bool:
        """Whether the article has a context word of the candidate."""
        if not candidate.context:
            return False
        if candidate.id not in self._known:
            if not self._text:
                self._text = f" {words_of(f'{self._article.title} {self._article.body}')} "
                self._single = frozenset(self._text.split(" "))
            # Phrases are searched only if all of their words are there: an article may be long.
            self._known[candidate.id] = any(
                self._single.issuperset(words.split(" ")) and f" {words} " in self._text for words in candidate.context
            )
        return self._known[candidate.id]


def add_ids(
    article: Article, entities: Sequence[Entity], candidates: Sequence[Sequence[Candidate]]
) -> Mapping[tuple[str, str], int]:
    """Add `ids`, `id` and `why` to the entities that have candidates, in place.

    Returns how many were matched, ambiguous and unmatched, by label and outcome.
    """
    found = single_out(article, entities, candidates)
    counts: dict[tuple[str, str], int] = {}
    for i, entity in enumerate(entities):
        ids: list[dict[str, Any]] = [{"id": each.id, "match": each.match} for each in candidates[i]]
        outcome = "ambiguous" if ids else "unmatched"
        if i in found:
            outcome, (entry_id, why) = "matched", found[i]
            if all(each["id"] != entry_id for each in ids):
                ids.append({"id": entry_id, "match": "surname"})
            entity["ids"], entity["id"], entity["why"] = ids, entry_id, why
        elif ids:
            entity["ids"] = ids
        key = entity["label"], outcome
        counts[key] = counts.get(key, 0) + 1
    return counts
