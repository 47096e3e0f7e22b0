"""What a ScaledObject's metadata ask for: whose backlog, by which rules. Unknown names are refused, as in the settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from enricher.scaling.policy import Rules

_KEDAS_OWN = {"scalerAddress", "enableTLS", "unsafeSsl", "caCert", "tlsClientCert", "tlsClientKey"}
"""KEDA hands over all metadata of the trigger, those for itself too."""
NAMES = ("groupId", "topic", "targetAgeSeconds", "catchUpSeconds", "maxReplicas")
_LONGEST_NAME = 255
"""A topic's name has 249 characters at most; a group's should stay readable in a log."""
_Number = TypeVar("_Number", int, float)


class BadMetadata(ValueError):
    """The metadata cannot be meant; the text says which."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One ScaledObject's wishes."""

    group: str
    topic: str
    rules: Rules

    def changed_by(self, metadata: Mapping[str, str]) -> Asked:
        """This, where `metadata` say nothing else. Raises BadMetadata."""
        own = {name: text for name, text in metadata.items() if name.removesuffix("FromEnv") not in _KEDAS_OWN}
        if unknown := sorted(own.keys() - set(NAMES)):
            raise BadMetadata(f"unknown metadata: {', '.join(unknown)}; known are {', '.join(NAMES)}")
        for name in ("groupId", "topic"):
            if len(own.get(name, "")) > _LONGEST_NAME or not own.get(name, "").isprintable():
                raise BadMetadata(
                    f"{name} is no name: at most {_LONGEST_NAME} characters, none of them a control character"
                )
        rules = self.rules
        return Asked(
            group=own.get("groupId") or self.group,
            topic=own.get("topic") or self.topic,
            rules=Rules(
                target_age_s=_number(own, "targetAgeSeconds", float) or rules.target_age_s,
                catch_up_s=_number(own, "catchUpSeconds", float) or rules.catch_up_s,
                max_workers=_number(own, "maxReplicas", int) or rules.max_workers,
            ),
        )


def _number(metadata: Mapping[str, str], name: str, kind: Callable[[str], _Number]) -> _Number | None:
    """The number of that name, above 0; None where there is none."""
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
