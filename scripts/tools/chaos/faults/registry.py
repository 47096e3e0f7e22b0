"""Faults of the schema registry, injected by the proxy in front of it.

Each begins with a schema that no worker has met, so that articles must wait for it. No fault excuses the end of a worker.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tools.chaos.faults.base import Fault
from tools.registry import Fault as Wrong

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.chaos.scene import Scene

_LONG_S = 25.0
"""Longer than a worker may stand still (`stall_timeout_s`), which counts only if the worker is to blame."""


class _RegistryFault(Fault):
    """One way of going wrong, of several."""

    exit_codes = frozenset[int]()
    ways: Sequence[Wrong]

    @classmethod
    def possible(cls, scene: Scene) -> bool:
        """Only if articles come in Avro."""
        return scene.schemas is not None

    def choose(self) -> None:
        """Draw the way, and for how long: now and then for a long time."""
        self.way = self.chosen.choice(self.ways)
        self.lasts_s = self.chosen.choice([*self.chosen.choices(range(3, 13), k=3), _LONG_S])
        self.about = f"{self.way.name}, {self.lasts_s:.0f} s"

    def apply(self) -> None:
        """Begin to go wrong, and publish with a new schema."""
        assert self.scene.schemas is not None, "it is not possible without"
        self.scene.schemas.proxy.begin(self.way)
        self.scene.schemas.renew()

    def heal(self) -> None:
        """Answer again."""
        assert self.scene.schemas is not None, "as above"
        self.about += f", {self.scene.backlog()} inputs waited"
        self.scene.schemas.proxy.end()


class RegistryDown(_RegistryFault):
    """Refuses connections, and cuts those that are open."""

    name = "registry down"
    ways = (Wrong.DOWN,)


class RegistrySlow(_RegistryFault):
    """Answers late, in drips, not to the end, or never."""

    name = "registry slow"
    ways = (Wrong.SLOW, Wrong.HANGS, Wrong.DRIPS, Wrong.CUT_OFF)


class RegistryWrong(_RegistryFault):
    """Answers, but not as a registry that knows or does not know a schema."""

    name = "registry wrong answers"
    # Not those that a worker must believe: another schema, or one that is too large.
    ways = (
        Wrong.ERROR,
        Wrong.UNAVAILABLE,
        Wrong.TOO_MANY,
        Wrong.UNAUTHORIZED,
        Wrong.FORBIDDEN,
        Wrong.NOT_FOUND_PAGE,
        Wrong.NOT_FOUND_EMPTY,
        Wrong.GARBAGE,
        Wrong.OTHER_JSON,
        Wrong.PAGE,
        Wrong.REDIRECT,
        Wrong.REDIRECT_LOOP,
    )


class RegistryAwayAtStart(_RegistryFault):
    """`kill -9`, and the next process of that worker starts without a registry: it has the schemas on its disk."""

    name = "registry away at the start of a worker"
    ways = (Wrong.DOWN, Wrong.HANGS, Wrong.UNAVAILABLE)
    silent_death = True
    exit_codes = frozenset({-signal.SIGKILL})

    def choose(self) -> None:
        """Draw the worker too."""
        super().choose()
        self.worker = self.some_worker()
        self.about = f"{self.worker}, {self.about}"

    def apply(self) -> None:
        """Kill the worker while the registry is away."""
        super().apply()
        self.slot(self.worker).send(signal.SIGKILL)
