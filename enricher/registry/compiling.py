"""Makes decoders of schemas, and tells what is wrong with a schema from what is wrong with this machine."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

from enricher.codec.schemas import Compile, Decoder, Schema, SchemaRef
from enricher.errors import InvalidArticle

log = logging.getLogger(__name__)

_MAX_SLOW = 1_000


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a schema: its decoder, or why there is none.

    `size_bytes`: the most memory of the decoder. `observed_s`: for how long the reason against it was observed; infinite if
    it cannot change.
    """

    reference: SchemaRef
    result: Decoder | InvalidArticle
    size_bytes: int = 0
    observed_s: float = math.inf


def refusal(reference: SchemaRef, why: object) -> Answer:
    """The answer for a schema that is there, but of no use."""
    return Answer(reference, InvalidArticle(f"schema {reference} cannot be used: {why}"))


class Compiler:
    """Compiles schemas, whatever strangers wrote. For one thread."""

    def __init__(self, compile_schema: Compile) -> None:
        self._compile = compile_schema
        self._slow: set[SchemaRef] = set()
        """Those that took too long once, and were not tried again yet."""

    def answer(self, reference: SchemaRef, schema: Schema) -> Answer:
        """The decoder, or why the schema cannot be used. Blocks.

        Raises OSError or MemoryError if this machine is the reason, as far as one can tell: then it may succeed later. A
        schema that takes too long is tried twice.
        """
        try:
            return Answer(reference, self._compile(schema, glue=reference.kind == "glue"), schema.decoder_bytes)
        except InvalidArticle as error:
            return refusal(reference, error)
        except TimeoutError as error:
            if reference in self._slow:
                self._slow.discard(reference)
                return refusal(reference, error)
            if len(self._slow) >= _MAX_SLOW:
                self._slow.pop()
            self._slow.add(reference)
            raise
        except (OSError, MemoryError):
            raise
        except Exception as error:
            # Whatever a stranger's schema does to a compiler, only the records that name it suffer.
            log.exception("schema %s cannot be compiled", reference)
            return refusal(reference, type(error).__name__)
