"""A KEDA trigger's metadata: which group and topic to scale, by which rules. Unknown names are refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from enricher.operate.scaling.policy import Rules

_FOR_KEDA = {"scalerAddress", "enableTLS", "unsafeSsl", "caCert", "tlsClientCert", "tlsClientKey"}
"""KEDA passes on all metadata of the trigger, including those for itself."""
NAMES = ("groupId", "topic", "targetAgeSeconds", "catchUpSeconds", "maxReplicas")
_MAX_NAME_CHARS = 255
"""Kafka allows 249 characters in a topic's name; a group's name should stay readable in a log."""
_Number = TypeVar("_Number", int, float)


class BadMetadata(ValueError):
    """The metadata are invalid; the text says which."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """The request of one ScaledObject."""

    group: str
    topic: str
    """The input topic; several with commas between them, which no topic's name has."""
    rules: Rules

    def changed_by(self, metadata: Mapping[str, str]) -> Trigger:
        """A copy in which `metadata` replace the values that they name. Raises BadMetadata."""
        own = {name: text for name, text in metadata.items() if name.removesuffix("FromEnv") not in _FOR_KEDA}
        if unknown := sorted(own.keys() - set(NAMES)):
            raise BadMetadata(f"unknown metadata: {', '.join(unknown)}; known are {', '.join(NAMES)}")
        for name in ("groupId", "topic"):
            if len(own.get(name, "")) > _MAX_NAME_CHARS or not own.get(name, "").isprintable():
                raise BadMetadata(f"{name} must have at most {_MAX_NAME_CHARS} characters and no control characters")
        rules = self.rules
        return Trigger(
            group=own.get("groupId") or self.group,
            topic=own.get("topic") or self.topic,
            rules=Rules(
                target_age_s=_number(own, "targetAgeSeconds", float) or rules.target_age_s,
                catch_up_s=_number(own, "catchUpSeconds", float) or rules.catch_up_s,
                max_workers=_number(own, "maxReplicas", int) or rules.max_workers,
            ),
        )


def _number(metadata: Mapping[str, str], name: str, kind: Callable[[str], _Number]) -> _Number | None:
    """The number of that name, above 0; None if it is missing."""
    text = metadata.get(name)
    if not text:
        return None
    try:
        number = kind(text)
    except ValueError:
        number = kind("0")
    if not 0 < number < math.inf:
        what = "a whole number" if kind is int else "a number"
        raise BadMetadata(f"{name} is '{text}': it must be {what} above 0")
    return number
