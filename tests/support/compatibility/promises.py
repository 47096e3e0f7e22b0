"""What our formats promise; `schemas/README.md` says why."""

from __future__ import annotations

from support.compatibility.levels import Level

_ARTICLE = '"urn:enricher:schema:article:'


def promised_level(text: str) -> Level:
    """What we promise for this schema. The publishers write articles, so every later worker must accept what one accepted.

    A typed new field of an article would refuse articles that have had another type under its name: there is no exception.
    """
    return Level.BACKWARD_TRANSITIVE if _ARTICLE in text else Level.PROMISE
