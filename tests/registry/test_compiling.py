"""`Compiler`: what is compiled again, and what is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from enricher.errors import InvalidArticle
from enricher.worker.articles.schemas import Decoder, Schema, SchemaRef
from enricher.worker.registry.compiling import SLOW_AGAIN_S, Compiler

REFERENCE = SchemaRef("id", "7")
SCHEMA = Schema("PROTOBUF", "message A {}")


class Compiling:
    """Counts what is compiled; `raises` is how each ends."""

    def __init__(self, raises: Exception) -> None:
        self.raises = raises
        self.times, self.now_s = 0, 0.0
        self.compiler = Compiler(self, clock=lambda: self.now_s)

    def __call__(self, schema: Schema, *, glue: bool) -> Decoder:  # noqa: ARG002
        """As `codec.schemas.Compile`."""
        self.times += 1
        raise self.raises

    def refused(self, schema: Schema = SCHEMA) -> bool:
        """Whether the schema is refused now."""
        return isinstance(self.compiler.answer(REFERENCE, schema).result, InvalidArticle)


@pytest.mark.parametrize("error", [InvalidArticle("it is broken"), RecursionError()])
def test_a_schema_that_cannot_be_used_is_compiled_once(error: Exception) -> None:
    """Each compilation may hold up all other schemas for half a minute. Another text of the same name is another schema."""
    compiling = Compiling(error)
    assert all(compiling.refused() for _ in range(3))
    assert 1 == compiling.times
    assert compiling.refused(Schema("PROTOBUF", "message B {}"))
    assert 2 == compiling.times


def test_a_schema_that_takes_too_long_is_compiled_again_after_a_while() -> None:
    """Twice at first, and then not each time that its refusal is forgotten elsewhere."""
    compiling = Compiling(TimeoutError("too slow"))
    for _ in range(2):
        with pytest.raises(TimeoutError):
            compiling.refused()
        assert all(compiling.refused() for _ in range(3))
        compiling.now_s += SLOW_AGAIN_S
    assert 4 == compiling.times


@pytest.mark.parametrize("error", [OSError, MemoryError])
def test_what_is_the_machines_fault_is_tried_each_time(error: Callable[[], Exception]) -> None:
    """It may succeed later."""
    compiling = Compiling(error())
    for _ in range(3):
        with pytest.raises((OSError, MemoryError)):
            compiling.refused()
    assert 3 == compiling.times
