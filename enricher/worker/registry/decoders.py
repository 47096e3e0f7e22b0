"""Decoders by the references of their schemas. A thread fetches the schemas that are missing, and compiles them.

The loop never waits for a decoder, so it uses `RegistryDecoders`; commands may wait (`WaitingDecoders`). `Fetcher` owns the
thread, and has the rule when an article stops waiting for its schema:

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
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from enricher.errors import InvalidArticle, SchemaPending
from enricher.worker.articles.schemas import Compile, Decoder, SchemaRef
from enricher.worker.registry.registry_client import RegistryUnavailable, UnknownToRegistry, UnusableSchema
from enricher.worker.registry.store import FindSchema
from enricher.worker.runtime.deadlines import doubling_pause_s
from enricher.worker.runtime.repeats import Repeats
from enricher.worker.stats import SchemaState

log = logging.getLogger(__name__)

MAX_DECODERS = 1_000
MAX_DECODER_BYTES = 200_000_000
"""Memory of all decoders by `Schema.decoder_bytes`: 500 ordinary Protobuf schemas of 5 kB, or 1,000 Avro schemas of 8 kB."""
MAX_REFUSALS = 20_000
_MAX_LATE = 10_000
"""The number of late schemas that are remembered; one that is forgotten is waited for again."""

FIRST_PAUSE_S = 0.5
"""The pause after a failure or an unknown id; it doubles with each further one."""
LONGEST_PAUSE_S = 30.0
MOST_IN_VAIN = 10
REMEMBERED_S = 3_600.0
UNKNOWN_S = 30.0
"""The time for which an unknown id is not asked for again once it was refused. Someone may register it meanwhile."""
UNUSABLE_S = 600.0
"""The same for a schema that cannot be used: compiling a hostile one may take half a minute."""
CLOSE_S = 1.0
"""The time that `close` waits for the thread. A thread that waits for the network is abandoned, which does no harm."""
_LOG_EVERY_S = 60.0
"""The time between two log lines about one outage."""


class RegistryDecoders:
    """Implements `articles.schemas.Decoders` and `loop.ports.Schemas`. Closes its fetcher."""

    def __init__(self, fetcher: Fetcher, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._fetcher = fetcher
        self._clock = clock
        self._ready: OrderedDict[SchemaRef, tuple[Decoder, int]] = OrderedDict()
        """Decoders with their bytes, the least recently used first."""
        self._ready_bytes = 0
        self._refused: OrderedDict[SchemaRef, _Refusal] = OrderedDict()
        """The oldest first."""

    def decoder(self, reference: SchemaRef) -> Decoder:
        """The decoder for this schema. Does not block. Raises SchemaPending or InvalidArticle."""
        if ready := self._ready.get(reference):
            self._ready.move_to_end(reference)
            return ready[0]
        if refusal := self._refused.get(reference):
            if self._clock() < refusal.until_s:
                raise InvalidArticle(refusal.message)
            del self._refused[reference]
        self._fetcher.ask(reference)
        raise SchemaPending(reference)

    def take_answered(self) -> Collection[SchemaRef]:
        """Schemas that were fetched or refused since the last call: read their records again. Does not block."""
        answers = self._fetcher.answers()
        for answer in answers:
            if isinstance(answer.result, InvalidArticle):
                self._refused[answer.reference] = _Refusal(str(answer.result), self._clock() + answer.counts_s)
                if len(self._refused) > MAX_REFUSALS:
                    self._refused.popitem(last=False)
            else:
                self._keep(answer, answer.result)
        return [answer.reference for answer in answers]

    def abandon(self, references: Collection[SchemaRef]) -> None:
        """Stop fetching these schemas: no record waits for them any more."""
        self._fetcher.drop(references)

    def state(self) -> SchemaState:
        """The state for telemetry. Safe in any thread."""
        return self._fetcher.state()

    def close(self) -> None:
        """End the fetcher. Blocks within its bound."""
        self._fetcher.close()

    def _keep(self, answer: Answer, decoder: Decoder) -> None:
        _, replaced_bytes = self._ready.pop(answer.reference, (None, 0))
        self._ready[answer.reference] = decoder, answer.size_bytes
        self._ready_bytes += answer.size_bytes - replaced_bytes
        while len(self._ready) > MAX_DECODERS or (self._ready_bytes > MAX_DECODER_BYTES and len(self._ready) > 1):
            _, (_, oldest_bytes) = self._ready.popitem(last=False)
            self._ready_bytes -= oldest_bytes


class WaitingDecoders:
    """Waits for each schema once, for at most `timeout_s`; later records do not wait for a schema that was late.

    `arrived` is set, by any thread, when `decoders` may have something new.
    """

    def __init__(self, decoders: RegistryDecoders, arrived: threading.Event, *, timeout_s: float) -> None:
        self._decoders = decoders
        self._arrived = arrived
        self._timeout_s = timeout_s
        self._late: set[SchemaRef] = set()

    def decoder(self, reference: SchemaRef) -> Decoder:
        """The decoder for this schema. Blocks. Raises InvalidArticle, or SchemaPending after `timeout_s`."""
        give_up_s = time.monotonic() + (0.0 if reference in self._late else self._timeout_s)
        while True:
            self._arrived.clear()
            self._decoders.take_answered()
            try:
                return self._decoders.decoder(reference)
            except SchemaPending:
                if not self._arrived.wait(max(0.0, give_up_s - time.monotonic())):
                    if len(self._late) >= _MAX_LATE:
                        self._late.pop()
                    self._late.add(reference)
                    raise


@dataclass(frozen=True, slots=True)
class _Refusal:
    message: str
    until_s: float


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
        """Fetch a schema, unless it was asked for already."""
        with self._changed:
            if reference not in self._wanted:
                now_s = self._clock()
                self._wanted[reference] = _Wanted(reference, now_s, unanswered_since_s=now_s)
                self._changed.notify()

    def drop(self, references: Iterable[SchemaRef]) -> None:
        """Stop fetching these schemas: nothing waits for them any more."""
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
            decoder = self._compile(schema)
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
