"""Faults of the schema registry, injected by the proxy in front of it.

Each begins with a schema that no worker has met, so that articles must wait for it. No fault excuses the end of a worker.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from tools.chaos.articles import Articles
from tools.chaos.faults.base import Fault
from tools.registry import Fault as Wrong
from tools.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.chaos.scene import Scene

_LONG_S = 25.0
"""Longer than a worker may stand still (`stall_timeout_s`), which counts only if the worker is to blame."""


_HONEST = 20
_OTHERS_S = 20.0
"""Within this time the other partitions must have processed what was published to them with a new schema."""

_MOST_BEHIND = 1_000
"""Articles that may be waiting before that; a topic that was made again may have ten thousand in one partition."""
_THROUGH_S = 120.0


class _RegistryFault(Fault):
    """A fault of the registry, or of records that name schemas."""

    exit_codes = frozenset[int]()

    @classmethod
    def possible(cls, scene: Scene) -> bool:
        """Only if articles come in Avro."""
        return scene.schemas is not None


class _RegistryAway(_RegistryFault):
    """One way of going wrong, of several."""

    ways: Sequence[Wrong]

    def choose(self) -> None:
        """Draw the way, and for how long: now and then for a long time."""
        self.way = self.chosen.choice(self.ways)
        self.lasts_s = self.chosen.choice([*self.chosen.choices(range(3, 13), k=3), _LONG_S])
        self.about = f"{self.way.name}, {self.lasts_s:.0f} s"

    def apply(self) -> None:
        assert self.scene.schemas is not None, "it is not possible without"
        self.scene.schemas.proxy.begin(self.way)
        self.scene.schemas.renew()

    def heal(self) -> None:
        assert self.scene.schemas is not None, "as above"
        self.about += f", {self.scene.backlog()} inputs waited"
        self.scene.schemas.proxy.end()


class RegistryDown(_RegistryAway):
    """Refuses connections, and cuts those that are open."""

    name = "registry down"
    ways = (Wrong.DOWN,)


class RegistrySlow(_RegistryAway):
    """Answers late, in drips, not to the end, or never."""

    name = "registry slow"
    ways = (Wrong.SLOW, Wrong.HANGS, Wrong.DRIPS, Wrong.CUT_OFF)


class RegistryWrong(_RegistryAway):
    """Answers, but not as a registry that knows or does not know a schema."""

    name = "registry wrong answers"
    # Not the one that a worker must believe: another schema.
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


class RegistryAwayAtStart(_RegistryAway):
    """`kill -9`, and the next process of that worker starts without a registry: it has the schemas on its disk."""

    name = "registry away at the start of a worker"
    ways = (Wrong.DOWN, Wrong.HANGS, Wrong.UNAVAILABLE)
    silent_death = True
    exit_codes = frozenset({-signal.SIGKILL})

    def choose(self) -> None:
        super().choose()
        self.worker = self.some_worker()
        self.about = f"{self.worker}, {self.about}"

    def apply(self) -> None:
        super().apply()
        self.slot(self.worker).send(signal.SIGKILL)


class UnknownIds(_RegistryFault):
    """Many records of six bytes, each with another id that nobody knows, in one partition; the others must go on.

    They get an honest schema that no worker has met.
    """

    name = "flood of unknown ids"
    _count = 1_500

    @classmethod
    def possible(cls, scene: Scene) -> bool:
        """Only if the others can reach their ends in time."""
        return super().possible(scene) and scene.backlog() <= _MOST_BEHIND

    def choose(self) -> None:
        self.partition = self.chosen.randrange(self.scene.partitions)
        self.lasts_s = self.chosen.uniform(3.0, 10.0)

    def apply(self) -> None:
        """Publish to the partition, then an honest schema to the others."""
        scene = self.scene
        assert scene.schemas is not None, "it is not possible without"
        self.about = f"{self._count} records in partition {self.partition}"
        scene.workload.burst(self._count, self.partition, make=Articles.unknown)
        self._end = scene.ends()[self.partition]
        scene.schemas.renew()
        others = [number for number in range(scene.partitions) if number != self.partition]
        for number in others:
            scene.workload.burst(_HONEST, number)
        ends = scene.ends()
        wanted = {number: ends[number] for number in others}
        if not wait_until(lambda: not scene.behind(wanted), _OTHERS_S, 0.2):
            self.broken.append(f"partitions {scene.behind(wanted)} did not go on within {_OTHERS_S:.0f} s")

    def heal(self) -> None:
        began_s = time.monotonic()
        if wait_until(lambda: not self.scene.behind({self.partition: self._end}), _THROUGH_S, 0.2):
            self.about += f", through {self.lasts_s + time.monotonic() - began_s:.0f} s after that"
        else:
            self.broken.append(f"the flood is not through within {_THROUGH_S:.0f} s")
