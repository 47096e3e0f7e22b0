"""The thread that gets schemas, from disk at once and from the registry as the queue allows, and makes decoders of them."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from queue import Empty, SimpleQueue

from enricher.errors import InvalidArticle
from enricher.worker.articles.schemas import Compile, Schema, SchemaRef
from enricher.worker.registry.compiling import Answer, Compiler, refusal
from enricher.worker.registry.queue import Patience, Queue, Wanted
from enricher.worker.registry.registry_client import RegistryClient
from enricher.worker.registry.registry_errors import (
    RefusedByRegistry,
    RegistryError,
    RegistryUnavailable,
    UnknownToRegistry,
    UnusableSchema,
)
from enricher.worker.registry.store import GlueFolder, SchemaStore
from enricher.worker.runtime.repeats import Repeats
from enricher.worker.stats.snapshot import SchemaState

log = logging.getLogger(__name__)

CLOSE_S = 1.0
"""The time that `close` waits for the thread. A thread that waits for the network is abandoned, which does no harm."""
_LOG_EVERY_S = 60.0
"""The time between two log lines about one outage."""
_COMPARE_AGAIN_S = 60.0
"""The pause after a failed attempt to compare a schema from disk with the registry's."""
_COMPARE_EVERY_S = 0.1
_MAX_COMPARED = 10_000
"""The most schemas from disk that are compared with the registry's."""
_ANSWERS_S = 1.0
"""A registry that has answered within this time is not asked whether it answers at all."""
_PROBES = 8
"""An id is given up only if so many questions about other ids are answered in a row. If half of all requests fail, that
happens once in 256 times."""
_TOO_MANY_REQUESTS = 429
"""HTTP's status that says nothing about the id: a gateway limits our requests, some of which strangers' records cause."""


class Fetcher:
    """Owns the thread. `ask`, `drop`, `answers`, `close` are for one thread, `state` for any.

    `client` and `store`: a registry, and its schemas on disk. `glue`: the schemas of AWS Glue. Each is None if the settings
    do not name it. The thread calls `wake` after each answer; it must be thread-safe and not raise.
    """

    def __init__(
        self,
        compile_schema: Compile,
        *,
        client: RegistryClient | None = None,
        store: SchemaStore | None = None,
        glue: GlueFolder | None = None,
        wake: Callable[[], None],
        patience: Patience,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._store = store
        self._glue = glue
        self._compiler = Compiler(compile_schema)
        self._wake = wake
        self._clock = clock
        self._changed = threading.Condition()
        """Guards `_queue`, `_new`, `_away_since_s` and `_closing`."""
        self._queue = Queue(patience)
        self._new: deque[SchemaRef] = deque()
        """Schemas that were not looked for on disk yet."""
        self._away_since_s: float | None = None
        self._closing = False
        self._from_disk: set[SchemaRef] = set()
        """Only the thread uses this and the four fields below."""
        self._to_compare: deque[SchemaRef] = deque()
        """Schemas from disk that were not compared with the registry's yet."""
        self._compare_s = 0.0
        self._repeats = Repeats(period_s=_LOG_EVERY_S, clock=clock)
        self._answered_s = float("-inf")
        """The time when the registry last answered."""
        self._outcomes = Counter[str]()
        self._answers: SimpleQueue[Answer | BaseException] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="schema-fetcher", daemon=True)
        self._thread.start()

    def ask(self, reference: SchemaRef) -> None:
        """Get a schema, unless it was asked for already."""
        with self._changed:
            if self._queue.add(reference, self._clock()):
                self._new.append(reference)
                self._changed.notify()

    def drop(self, references: Iterable[SchemaRef]) -> None:
        """Nothing waits for these any more."""
        with self._changed:
            self._queue.drop(references)

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
        """The state for telemetry. Waits for nothing but the queue's lock."""
        with self._changed:
            wanted = len(self._queue)
            since_s = self._away_since_s if wanted else None
        away_s = 0.0 if since_s is None else max(0.0, self._clock() - since_s)
        return SchemaState(dict(self._outcomes), away_s, wanted)

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """End the thread, or abandon it if it waits for the network."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_s)

    # ---- in the thread

    def _run(self) -> None:
        try:
            while task := self._next_task():
                task()
        except BaseException as error:  # noqa: BLE001  raised again in the owner's thread
            self._answers.put(error)
            self._wake()

    def _next_task(self) -> Callable[[], None] | None:
        """The next task; waits until there is one. None to end."""
        with self._changed:
            while not self._closing:
                now_s = self._clock()
                if self._new:
                    reference = self._new.popleft()
                    return lambda: self._look_on_disk(reference)
                if batch := self._queue.next(now_s):
                    return lambda: self._fetch(batch)
                compare_s = max(self._compare_s, self._queue.free_s) if self._to_compare else None
                if compare_s is not None and compare_s <= now_s:
                    kept = self._to_compare.popleft()
                    return lambda: self._compare(kept)
                next_s = min((at for at in (self._queue.next_s(), compare_s) if at is not None), default=None)
                self._changed.wait(None if next_s is None else max(0.0, next_s - now_s))
        return None

    def _look_on_disk(self, reference: SchemaRef) -> None:
        if self._store and (schema := self._store.find(reference)):
            if reference not in self._from_disk and len(self._from_disk) < _MAX_COMPARED:
                self._from_disk.add(reference)
                self._to_compare.append(reference)
            try:
                self._deliver(self._compiler.answer(reference, schema))
            except (OSError, MemoryError) as error:  # the queue still has it, so the registry is asked
                log.warning("schema %s from disk cannot be compiled at the moment: %s", reference, _reason(error))

    def _fetch(self, batch: Sequence[Wanted]) -> None:
        unanswered: list[tuple[Wanted, RegistryError]] = []
        for wanted, found in zip(batch, self._fetch_each([each.reference for each in batch]), strict=True):
            if isinstance(found, Schema):
                self._compile(wanted, found)
            elif isinstance(found, UnknownToRegistry):
                reason = InvalidArticle(f"schema {wanted.reference} is unknown: {found}")
                self._refuse(wanted, "unknown", Answer(wanted.reference, reason))
            elif isinstance(found, UnusableSchema):
                self._refuse(wanted, "unusable", refusal(wanted.reference, found))
            else:
                unanswered.append((wanted, found))
        if unanswered:
            self._judge_failures(unanswered)

    def _compile(self, wanted: Wanted, schema: Schema) -> None:
        try:
            answer = self._compiler.answer(wanted.reference, schema)
        except (OSError, MemoryError) as error:
            self._note_failure(wanted, error)
            return
        self._count_answer("found")
        with self._changed:
            self._queue.note_found(wanted)
        self._deliver(answer)

    def _compare(self, reference: SchemaRef) -> None:
        """Compare a schema that came from disk with the registry's and log a difference. The one from disk stays in use."""
        try:
            changed = self._is_changed(reference)
        except RegistryError:  # an outage is reported when articles wait for it
            self._to_compare.append(reference)
            self._compare_s = self._clock() + _COMPARE_AGAIN_S
            return
        self._count_answer("changed" if changed else "found")
        self._compare_s = self._clock() + _COMPARE_EVERY_S
        if changed:
            log.error(
                "schema %s: the registry no longer has what is kept in registry.cache_dir, which is used. Ids never "
                "change, so it was emptied or replaced; if its ids count from now on, delete that folder and restart",
                reference,
            )

    # ---- where schemas are

    def _fetch_each(self, references: Sequence[SchemaRef]) -> list[Schema | RegistryError]:
        """The schemas from where they belong, or why there is none. Blocks."""
        asked = [each for each in references if each.in_registry]
        answers = dict(zip(asked, self._from_registry(asked), strict=True))
        return [answers[each] if each.in_registry else self._from_glue(each) for each in references]

    def _from_registry(self, references: Sequence[SchemaRef]) -> Sequence[Schema | RegistryError]:
        """The registry's answers; schemas are kept, and the one that was kept first counts."""
        if self._client is None:
            return [UnusableSchema("registry.url is not set") for _ in references]
        found = self._client.schemas(references) if references else ()
        return [
            self._store.keep(reference, each) if self._store and isinstance(each, Schema) else each
            for reference, each in zip(references, found, strict=True)
        ]

    def _from_glue(self, reference: SchemaRef) -> Schema | RegistryError:
        if self._glue is None:
            return UnusableSchema("registry.glue_folder is not set")
        try:
            return self._glue.schema(reference.name)
        except RegistryError as error:
            return error

    def _is_changed(self, reference: SchemaRef) -> bool:
        """Whether the registry no longer has what is kept. Blocks. Raises RegistryUnavailable or UnusableSchema."""
        kept = self._store.find(reference) if self._store else None
        if self._client is None or kept is None:
            return False
        try:
            return self._client.schema(reference) != kept
        except UnknownToRegistry:
            return True

    # ---- outcomes

    def _count_answer(self, outcome: str) -> None:
        self._outcomes[outcome] += 1
        self._answered_s = self._clock()
        with self._changed:
            self._queue.note_answer(self._answered_s, found=outcome == "found")

    def _refuse(self, wanted: Wanted, outcome: str, answer: Answer) -> None:
        """Refuse a schema if the registry has given the same answer for long enough."""
        self._count_answer(outcome)
        now_s = self._clock()
        with self._changed:
            if not self._queue.is_refused(wanted, now_s, unknown=outcome == "unknown"):
                return
            observed_s = self._queue.refuse(wanted, now_s)
        self._deliver(replace(answer, observed_s=observed_s))

    def _judge_failures(self, failures: Sequence[tuple[Wanted, RegistryError]]) -> None:
        """Distinguish an outage, in which everything waits, from single ids without answers, which are given up in time."""
        from_registry = any(wanted.reference.in_registry for wanted, _ in failures)
        answers = from_registry and self._registry_answers()
        for wanted, error in failures:
            status = error.status if isinstance(error, RegistryUnavailable | RefusedByRegistry) else None
            blamed = answers and wanted.reference.in_registry and status != _TOO_MANY_REQUESTS
            now_s = self._clock()
            with self._changed:
                is_given_up = blamed and self._queue.blame(wanted, status, now_s)
            if is_given_up and not all(self._probe() for _ in range(_PROBES)):
                is_given_up = answers = False
            if is_given_up:
                with self._changed:
                    observed_s = self._queue.refuse(wanted, now_s)
                self._give_up(wanted, error, observed_s)
            else:
                self._note_failure(wanted, error)
        if from_registry and not answers:
            with self._changed:
                self._queue.away(self._clock())

    def _registry_answers(self) -> bool:
        """Whether the registry has just answered, or answers a question about another id now. Blocks for that request."""
        if self._clock() - self._answered_s > _ANSWERS_S and self._probe():
            self._answered_s = self._clock()
        return self._clock() - self._answered_s <= _ANSWERS_S

    def _probe(self) -> bool:
        return self._client is not None and self._client.answers_about_ids()

    def _give_up(self, wanted: Wanted, error: RegistryError, observed_s: float) -> None:
        self._outcomes["given_up"] += 1
        reason = (
            f"schema {wanted.reference} could not be fetched, although the registry answers about other ids: {error} "
            "(given up after registry.give_up_s)"
        )
        self._log(logging.ERROR, f"articles become dead letters: {reason}")
        self._deliver(Answer(wanted.reference, InvalidArticle(reason), observed_s=observed_s))

    def _note_failure(self, wanted: Wanted, error: Exception) -> None:
        self._outcomes["unavailable"] += 1
        now_s = self._clock()
        with self._changed:
            self._queue.note_failure(wanted, now_s)
            begins = self._away_since_s is None
            if begins:
                self._away_since_s = now_s
        message = f"no answer about schema {wanted.reference}: {_reason(error)}"
        self._log(
            logging.WARNING,
            f"{message}; its articles wait, and it is asked for again (registry.retry_max_s)",
            at_once=begins,
        )

    def _log(self, level: int, message: str, *, at_once: bool = False) -> None:
        """Log at most one line per level and `_LOG_EVERY_S`; with `at_once` this line in any case."""
        if at_once:
            self._repeats.forget(level)
        if self._repeats.is_new(level):
            log.log(level, "%s", message)

    def _deliver(self, answer: Answer) -> None:
        with self._changed:
            self._queue.drop([answer.reference])
            since_s = self._away_since_s
            if self._queue.failing:
                since_s = None
            else:
                self._away_since_s = None
        if since_s is not None:
            log.info("all schemas are available again after %.0f s", self._clock() - since_s)
        self._answers.put(answer)
        self._wake()


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
