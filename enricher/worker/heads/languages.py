"""Which tasks an article gets, by its language."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Languages:
    """The articles that a task is for: those whose language is one of `names`, and if `default`, those without a language.

    Names are BCP 47 tags in lower case, and stand for longer tags too: `en` for `en-gb`, `zh-hant` for `zh-hant-tw`.
    """

    names: frozenset[str]
    default: bool = False

    def include(self, language: str | None) -> bool:
        """Whether the task runs on an article with this language."""
        tag = (language or "").strip().lower().replace("_", "-")
        if not tag:
            return self.default
        return any(tag == name or tag.startswith(f"{name}-") for name in self.names)
