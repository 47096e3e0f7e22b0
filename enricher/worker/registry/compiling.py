"""Makes decoders of schemas, and distinguishes a schema that cannot be used from trouble on this machine."""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from enricher.errors import InvalidArticle
from enricher.worker.articles.schemas import Compile, Decoder, Schema, SchemaRef

log = logging.getLogger(__name__)

_MAX_SLOW = 1_000
_MAX_REFUSED = 10_000
SLOW_AGAIN_S = 600.0
"""A schema that took too long twice is tried again after this time: perhaps the machine was busy."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The decoder of a schema, or why there is none.

    `size_bytes`: the most memory of the decoder. `observed_s`: for how long the reason against it was observed; infinite if
    it cannot change.
    """

    reference: SchemaRef
    result: Decoder | InvalidArticle
    size_bytes: int = 0
    observed_s: float = math.inf


def refusal(reference: SchemaRef, why: object) -> Answer:
    """The answer for a schema that exists, but cannot be used."""
    return Answer(reference, InvalidArticle(f"schema {reference} cannot be used: {why}"))


class Compiler:
    """Compiles schemas, which strangers may have written. For one thread.

    Refusals are remembered, because to compile a hostile schema may take half a minute, and any record may name it again.
    """

    def __init__(self, compile_schema: Compile, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._compile = compile_schema
        self._clock = clock
        self._refused: OrderedDict[tuple[SchemaRef, int], tuple[Answer, float]] = OrderedDict()
        """Refusals by reference and hash of the schema, with the time until which they count. The oldest comes first."""
        self._slow: set[SchemaRef] = set()
        """Schemas that took too long once, and were not tried again yet."""

    def answer(self, reference: SchemaRef, schema: Schema) -> Answer:
        """The decoder, or why the schema cannot be used. Blocks.

        Raises OSError or MemoryError if this machine is the reason, as far as one can tell: then it may succeed later. A
        schema that takes too long is tried twice, and again after `SLOW_AGAIN_S`.
        """
        key = reference, hash(schema)
        answer, until_s = self._refused.get(key, (None, 0.0))
        if answer is not None and self._clock() < until_s:
            return answer
        answer, counts_s = self._try_to_compile(reference, schema)
        if isinstance(answer.result, InvalidArticle):
            self._refused.pop(key, None)
            self._refused[key] = answer, self._clock() + counts_s
            if len(self._refused) > _MAX_REFUSED:
                self._refused.popitem(last=False)
        return answer

    def _try_to_compile(self, reference: SchemaRef, schema: Schema) -> tuple[Answer, float]:
        """The answer, and for how many seconds it counts if it is a refusal."""
        try:
            decoder = self._compile(schema, glue=not reference.in_registry)
            return Answer(reference, decoder, schema.decoder_bytes), math.inf
        except InvalidArticle as error:
            return refusal(reference, error), math.inf
        except TimeoutError as error:
            if reference in self._slow:
                self._slow.discard(reference)
                return refusal(reference, error), SLOW_AGAIN_S
            if len(self._slow) >= _MAX_SLOW:
                self._slow.pop()
            self._slow.add(reference)
            raise
        except (OSError, MemoryError):
            raise
        except Exception as error:
            # Whatever a stranger's schema does to a compiler, only the records that name it suffer.
            log.exception("schema %s cannot be compiled", reference)
            return refusal(reference, type(error).__name__), math.inf
