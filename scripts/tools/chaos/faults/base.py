"""The base class of all faults: apply, last for a while, heal."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from random import Random
from typing import ClassVar

from tools.chaos.crew import Slot
from tools.chaos.rules import Api, Match, Rule
from tools.chaos.scene import Scene

CATCH_S = 6.0
"""A busy worker sends each request of a transaction several times a second; a resting or restarting one takes longer."""


EXIT_CODES = frozenset({0, 5, 6, 7, -signal.SIGKILL, -signal.SIGTERM})
"""Exit codes that a fault may cause: stopped, fenced, no recovery, no progress; SIGTERM if it came before the handler was
installed."""
REFUSED = 4
"""Only where a fault takes a topic away."""
NO_OFFSETS = 2
"""Only where a fault takes the group's offsets away: a worker refuses to guess where it begins."""


class Fault(ABC):
    """One fault. Its parameters depend only on `chosen` and on the numbers of workers and brokers.

    `lasts_s`: time from `apply` to `heal`. `about`: the parameters in words, complete after `heal`.
    """

    name: ClassVar[str]
    silent_death: ClassVar[bool] = False
    """True if a worker dies without leaving its group: the group may need a session timeout to notice."""
    exit_codes: ClassVar[frozenset[int]] = EXIT_CODES
    """The exit codes with which workers may end because of this fault."""

    def __init__(self, scene: Scene, chosen: Random) -> None:
        self.scene = scene
        self.chosen = chosen
        self.lasts_s = 0.0
        self.about = ""
        self.broken: list[str] = []
        """Demands on the group, while the fault lasts, that were not met; complete after `heal`."""
        self._rules: list[Rule] = []
        self.choose()

    @classmethod
    def possible(cls, scene: Scene) -> bool:  # noqa: ARG003
        """Whether the fault can be injected now, on this system."""
        return True

    def choose(self) -> None:  # noqa: B027  optional
        """Draw the parameters."""

    @abstractmethod
    def apply(self) -> None:
        """Inject the fault. May block until the right moment."""

    def heal(self) -> None:
        """End the fault: here its rules. May block until what was broken works again."""
        self.scene.proxy.lift(*self._rules)

    # ---- helpers

    def some_worker(self) -> str:
        return self.chosen.choice(sorted(self.scene.crew.slots))

    def slot(self, name: str) -> Slot:
        return self.scene.crew.slots[name]

    def of_worker(self, name: str, *apis: Api) -> Match:
        """Match a worker's requests: these, or all."""
        return Match(apis or None, self.slot(name).client_id)

    def inject(self, rule: Rule) -> None:
        """Apply a rule until `heal`."""
        self._rules.append(rule)
        self.scene.proxy.apply(rule)

    def catch(self, rule: Rule) -> bool:
        """Inject a rule and wait until it takes effect; `about` says so if it does not."""
        self.inject(rule)
        if not rule.caught.wait(CATCH_S):
            self.about += ", which did not come"
        return rule.caught.is_set()
