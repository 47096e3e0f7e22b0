"""What every fault is: something that is made, lasts for a while, and is healed."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from tools.chaos.frames import Api
from tools.chaos.rules import Match

if TYPE_CHECKING:
    from random import Random

    from tools.chaos.crew import Place
    from tools.chaos.rules import Rule
    from tools.chaos.scene import Scene

CATCH_S = 6.0
"""A busy worker sends every request of a transaction several times a second; one that rests, or restarts, takes longer."""


EXIT_CODES = frozenset({0, 5, 6, 7, -signal.SIGKILL, -signal.SIGTERM})
"""With a reason: asked to, fenced, no recovery, no progress. SIGTERM where it came before the interpreter had begun to
listen. Not 4: whatever a fault does, no broker refuses anything for good."""
FENCED = 5
"""Only with a rival, or where a process that died is still a member of the group under the worker's name."""


class Fault(ABC):
    """One fault with its parameters, which depend on `chosen` alone and on the number of workers and brokers.

    `lasts_s`: from `apply` to `heal`. `about`: the parameters in words, complete once it is healed.
    """

    name: ClassVar[str]
    silent_death: ClassVar[bool] = False
    """True where a worker dies without a word: the group may take a session timeout to notice."""
    exit_codes: ClassVar[frozenset[int]] = EXIT_CODES
    """With which workers may end meanwhile."""

    def __init__(self, scene: Scene, chosen: Random) -> None:
        self.scene = scene
        self.chosen = chosen
        self.lasts_s = 0.0
        self.about = ""
        self.choose()

    @classmethod
    def possible(cls, scene: Scene) -> bool:  # noqa: ARG003
        """Whether it can be done here and now."""
        return True

    def choose(self) -> None:  # noqa: B027  some have none
        """Fix the parameters."""

    def shorten(self) -> None:
        """Make it as short as it can be and still be one: for tests."""
        self.lasts_s = min(self.lasts_s, 2.0)

    @abstractmethod
    def apply(self) -> None:
        """Make it. May block until the moment has come."""

    def heal(self) -> None:  # noqa: B027  some heal by themselves
        """End it. May block until what was broken is back."""

    # ---- for those that need it

    def some_worker(self) -> str:
        """Choose a worker, by name."""
        return self.chosen.choice(sorted(self.scene.crew.places))

    def place(self, name: str) -> Place:
        """Where that worker runs."""
        return self.scene.crew.places[name]

    def of_worker(self, name: str, *apis: Api) -> Match:
        """Its requests, all or these."""
        return Match(apis or None, self.place(name).client_id)

    def catch(self, rule: Rule) -> bool:
        """Apply a rule and wait until it had something to do; notes where it had not."""
        self.scene.proxy.apply(rule)
        if not rule.caught.wait(CATCH_S):
            self.about += ", which did not come"
        return rule.caught.is_set()
