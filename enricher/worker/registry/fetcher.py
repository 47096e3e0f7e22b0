"""The thread that gets schemas and makes decoders of them, and the rule when an article stops waiting for its schema.

| the registry | what the articles of an id do |
|---|---|
| has no such id, or fails on it while it answers about others | wait for `unknown_wait_s`, then are refused |
| does not answer | wait, for ever |
| has a schema that cannot be used | are refused at once |

An id is chosen by whoever wrote the record, so waiting for ids that nobody has is bounded: within `REMEMBERED_S`, each is
waited for in vain once, and `MOST_IN_VAIN` of them in all. Beyond that, an unknown id is refused at the first answer.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from enricher.errors import InvalidArticle
from enricher.worker.articles.schemas import Compile, Decoder, SchemaRef
from enricher.worker.registry.finding import FindSchema
from enricher.worker.registry.registry_errors import RegistryUnavailable, UnknownToRegistry, UnusableSchema
from enricher.worker.rules.pauses import doubling_pause_s
from enricher.worker.runtime.repeats import Repeats
from enricher.worker.stats.snapshot import SchemaState

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.5
"""The pause after a failure or an unknown id; it doubles with each further one."""
LONGEST_PAUSE_S = 30.0
MOST_IN_VAIN = 10
REMEMBERED_S = 3_600.0
UNKNOWN_S = 30.0
"""The time for which an unknown id is not asked for again once it was refused. Someone may register it meanwhile."""
UNUSABLE_S = 600.0
"""The same for a schema that cannot be used: to compile a hostile one may take half a minute."""
CLOSE_S = 1.0
"""The time that `close` waits for the thread. A thread that waits for the network is abandoned, which does no harm."""
_LOG_EVERY_S = 60.0
"""The time between two log lines about one outage."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The decoder of a schema, or why there is none. `size_bytes`: the most memory of the decoder.

    `counts_s`: for how long a refusal counts.
    """

    reference: SchemaRef
    result: Decoder | InvalidArticle
    size_bytes: int = 0
    counts_s: float = math.inf


@dataclass(slots=True, eq=False)
class _Wanted:
    """A schema that articles wait for."""

    reference: SchemaRef
    due_s: float
    """When to ask for it next."""
    unanswered_since_s: float | None
    """The time since which nobody has answered about it; None after an answer."""
    unknown_since_s: float | None = None
    """When the registry first answered that it has no such schema."""
    tries: int = 0


class Fetcher:
    """Owns the thread. `ask`, `drop`, `answers`, `close` are for one thread, `state` for any.

    The thread calls `wake` after each answer; it must be thread-safe and not raise. It asks for one schema after the other:
    the one that is due first.
    """

    def __init__(
        self,
        find: FindSchema,
        compile_schema: Compile,
        *,
        wake: Callable[[], None],
        unknown_wait_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find = find
        self._compile = compile_schema
        self._wake = wake
        self._unknown_wait_s = unknown_wait_s
        self._clock = clock
        self._changed = threading.Condition()
        """Guards `_wanted` and `_closing`."""
        self._wanted: dict[SchemaRef, _Wanted] = {}
        self._closing = False
        self._in_vain: dict[SchemaRef, float] = {}
        """Ids that were waited for in vain, and when that ended. Only the thread uses it."""
        self._repeats = Repeats(period_s=_LOG_EVERY_S, clock=clock)
        self._outcomes = Counter[str]()
        self._answers: SimpleQueue[Answer | BaseException] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="schema-fetcher", daemon=True)
        self._thread.start()

    def ask(self, reference: SchemaRef) -> None:
        """Get a schema, unless it was asked for already."""
        with self._changed:
            if reference not in self._wanted:
                now_s = self._clock()
                self._wanted[reference] = _Wanted(reference, now_s, unanswered_since_s=now_s)
                self._changed.notify()

    def drop(self, references: Iterable[SchemaRef]) -> None:
        """Nothing waits for these any more."""
        with self._changed:
            for reference in references:
                self._wanted.pop(reference, None)

    def answers(self) -> list[Answer]:
        """The answers since the last call. Re-raises what ended the thread, which is a bug."""
        answers: list[Answer] = []
        while True:
            try:
                answer = self._answers.get_nowait()
            except Empty:
                return answers
            if isinstance(answer, BaseException):
                raise answer
            answers.append(answer)

    def state(self) -> SchemaState:
        """The state for telemetry. Waits for nothing but the lock."""
        with self._changed:
            since = [each.unanswered_since_s for each in self._wanted.values() if each.unanswered_since_s is not None]
            wanted = len(self._wanted)
        now_s = self._clock()
        return SchemaState(dict(self._outcomes), now_s - min(since, default=now_s), wanted)

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """End the thread, or abandon it if it waits for the network."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_s)

    # ---- in the thread

    def _run(self) -> None:
        try:
            while wanted := self._next():
                self._try(wanted)
        except BaseException as error:  # noqa: BLE001  raised again in the owner's thread
            self._answers.put(error)
            self._wake()

    def _next(self) -> _Wanted | None:
        """The schema to ask for now; waits until there is one. None to end."""
        with self._changed:
            while not self._closing:
                first = min(self._wanted.values(), key=lambda each: each.due_s, default=None)
                pause_s = None if first is None else first.due_s - self._clock()
                if pause_s is not None and pause_s <= 0:
                    return first
                self._changed.wait(pause_s)
        return None

    def _try(self, wanted: _Wanted) -> None:
        reference = wanted.reference
        try:
            schema = self._find(reference)
            decoder = self._compile(schema, glue=not reference.in_registry)
        except UnknownToRegistry as error:
            self._doubt(wanted, "unknown", f"schema {reference} is unknown: {error}", UNKNOWN_S)
        except TimeoutError as error:  # of the compiler: the machine may be busy
            self._doubt(wanted, "unusable", f"schema {reference} cannot be used: {error}", UNUSABLE_S)
        except (UnusableSchema, InvalidArticle) as error:
            self._refuse(wanted, "unusable", f"schema {reference} cannot be used: {error}", UNUSABLE_S)
        except (RegistryUnavailable, OSError, MemoryError) as error:
            self._note_failure(wanted, error)
        except Exception as error:
            # Whatever a stranger's schema does to a compiler, only the records that name it suffer.
            log.exception("schema %s cannot be compiled", reference)
            self._refuse(wanted, "unusable", f"schema {reference} cannot be used: {type(error).__name__}", UNUSABLE_S)
        else:
            self._in_vain.pop(reference, None)
            self._outcomes["found"] += 1
            self._deliver(Answer(reference, decoder, schema.decoder_bytes))

    def _doubt(self, wanted: _Wanted, outcome: str, reason: str, counts_s: float) -> None:
        """Ask again during `unknown_wait_s`, as a follower in a cluster of registries may lag behind; then refuse."""
        now_s = self._clock()
        if wanted.unknown_since_s is None:
            wanted.unknown_since_s = now_s
        until_s = wanted.unknown_since_s + self._unknown_wait_s
        if not self._may_wait(wanted.reference, now_s):
            self._refuse(wanted, outcome, reason, counts_s)
        elif now_s < until_s:
            self._outcomes[outcome] += 1
            self._ask_again(wanted, now_s, until_s)
            wanted.unanswered_since_s = None
        else:
            self._in_vain[wanted.reference] = now_s
            self._refuse(wanted, outcome, reason, counts_s)

    def _may_wait(self, reference: SchemaRef, now_s: float) -> bool:
        self._in_vain = {each: at_s for each, at_s in self._in_vain.items() if now_s - at_s < REMEMBERED_S}
        return reference not in self._in_vain and len(self._in_vain) < MOST_IN_VAIN

    def _refuse(self, wanted: _Wanted, outcome: str, reason: str, counts_s: float) -> None:
        self._outcomes[outcome] += 1
        self._deliver(Answer(wanted.reference, InvalidArticle(reason), counts_s=counts_s))

    def _note_failure(self, wanted: _Wanted, error: Exception) -> None:
        self._outcomes["unavailable"] += 1
        now_s = self._clock()
        if wanted.unanswered_since_s is None:
            wanted.unanswered_since_s = now_s
        wanted.unknown_since_s = None
        self._ask_again(wanted, now_s, math.inf)
        if self._repeats.is_new("unavailable"):
            reason = str(error) or type(error).__name__
            log.warning(
                "no answer about schema %s: %s; its articles wait, and it is asked for again", wanted.reference, reason
            )

    def _ask_again(self, wanted: _Wanted, now_s: float, until_s: float) -> None:
        wanted.tries += 1
        pause_s = doubling_pause_s(wanted.tries, first_s=FIRST_PAUSE_S, longest_s=LONGEST_PAUSE_S)
        wanted.due_s = min(now_s + pause_s, until_s)

    def _deliver(self, answer: Answer) -> None:
        self.drop([answer.reference])
        self._answers.put(answer)
        self._wake()
