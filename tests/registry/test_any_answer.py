"""Whatever a server says, the client returns what it should or raises an error of the registry, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

from hypothesis import example, given
from hypothesis import strategies as st
from support.texts import any_text

from enricher.worker.articles.schemas import Schema, SchemaRef
from enricher.worker.registry.config import registry_config
from enricher.worker.registry.http import Requests, _Answer, _meaning
from enricher.worker.registry.registry_client import Compatibility, Registered, RegistryClient
from enricher.worker.registry.registry_errors import RegistryError

NAMES = (
    "schema", "schemaType", "references", "name", "subject", "version", "id", "messages", "is_compatible",
    "compatibilityLevel", "error_code", "message",
)  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text(max_size=5)
VALUES = st.recursive(
    LEAVES | st.sampled_from(["AVRO", "PROTOBUF", "JSON"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=8),
    max_leaves=20,
)
BODIES = st.binary(max_size=200) | st.sampled_from([b"", b"{}", b"[[", b'{"error_code":40403}', b'{"error_code":true}'])
OURS = Schema("AVRO", '"string"')


class Says:
    """A server that says the same to everything."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def get(self, _path: str) -> Any:  # noqa: ANN401  any JSON
        """The answer."""
        return self._answer

    def get_each(self, paths: Sequence[str]) -> list[Any]:
        """The answer, for each."""
        return [self._answer for _ in paths]

    def post(self, _path: str, _body: object) -> Any:  # noqa: ANN401  any JSON
        """The answer."""
        return self._answer

    put = post


QUESTIONS: list[tuple[Callable[[RegistryClient], object], tuple[type, ...]]] = [
    (lambda asks: asks.schema(SchemaRef("id", "7")), (Schema,)),
    (lambda asks: asks.answers_about_ids(), (bool,)),
    (lambda asks: asks.lookup("s", OURS), (Registered,)),
    (lambda asks: asks.latest("s"), (Registered,)),
    (lambda asks: asks.register("s", OURS), (int,)),
    (lambda asks: asks.versions("s"), (list,)),
    (lambda asks: asks.subjects(), (list,)),
    (lambda asks: asks.compatibility("s"), (str,)),
    (lambda asks: asks.check("s", OURS), (Compatibility,)),
]


@given(VALUES)
@example({"schema": "x", "references": {"name": "x"}})
@example({"schema": "x", "references": 5})
@example({"schema": "x", "references": "abc"})
@example({"schema": "x", "references": [[]]})
@example({"schema": "x", "references": [{"name": "a", "subject": "b", "version": True}]})
@example({"schema": "x", "schemaType": ["AVRO"], "subject": "s", "version": 1, "id": 1})
@example({"is_compatible": True, "messages": [1, None]})
def test_any_json_is_an_answer_or_an_error_of_the_registry(answer: object) -> None:
    """For each question."""
    config = registry_config("http://registry", {}, timeout_s=1.0, max_schema_bytes=1_000)
    asks = RegistryClient(config)
    asks._requests = cast("Requests", Says(answer))
    for question, kinds in QUESTIONS:
        with suppress(RegistryError):
            assert isinstance(question(asks), kinds)


@given(
    st.integers(100, 599), BODIES, st.sampled_from(["", "application/json", "application/vnd.schemaregistry.v1+json"])
)
def test_any_status_and_body_is_json_or_an_error_of_the_registry(status: int, body: bytes, media_type: str) -> None:
    """Nothing that a proxy could send ends the thread."""
    with suppress(RegistryError):
        _meaning(_Answer(status, media_type, body, complete=True))
