"""The errors: the tree that is drawn is the tree that exists, each end has its exit code, and nothing foreign gets out."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException

import enricher
from enricher import errors
from enricher.errors import BrokerError, EnricherError, FatalError, ProducerFenced, TransactionTrouble
from enricher.worker.kafka.errors import ClientErrors, mapping_errors, our_error

CODES = sorted({value for name, value in vars(KafkaError).items() if name.isupper() and isinstance(value, int)})
_DRAWN = re.compile(r"^(?P<indent>[ │├└─]*)(?P<name>[A-Z]\w+) *(?P<code>\d+)?(?= |$)")


def drawn() -> dict[str, tuple[str | None, int | None]]:
    """Parent and exit code of each error in the drawing."""
    found: dict[str, tuple[str | None, int | None]] = {}
    path: list[str] = []
    assert errors.__doc__ is not None
    for line in errors.__doc__.splitlines():
        if line.startswith("    ") and (match := _DRAWN.match(line[4:])):
            depth = len(match["indent"]) // 4
            path[depth:] = [match["name"]]
            found[match["name"]] = (path[depth - 1] if depth else None, int(match["code"]) if match["code"] else None)
    return found


def real() -> dict[str, type[EnricherError]]:
    """All errors that the module defines."""
    return {name: cls for name, cls in vars(errors).items() if isinstance(cls, type) and issubclass(cls, EnricherError)}


def below(cls: type[FatalError]) -> Iterator[type[FatalError]]:
    """A class and all that inherit from it."""
    yield cls
    for child in cls.__subclasses__():
        yield from below(child)


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    """The same names, parents and exit codes; a new error must be drawn, and one that is gone must go there too."""
    parents = {name: cls.__base__.__name__ if cls.__base__ else None for name, cls in real().items()}
    parents["EnricherError"] = None  # its parent is not ours
    assert parents == {name: parent for name, (parent, _) in drawn().items()}
    codes = {name: code for name, (_, code) in drawn().items() if code is not None}
    fatal = {name: cls for name, cls in real().items() if issubclass(cls, FatalError) and "exit_code" in vars(cls)}
    assert codes == {name: cls.exit_code for name, cls in fatal.items() if cls is not FatalError}
    assert len(set(codes.values())) == len(codes)


def test_the_command_line_explains_every_exit_code() -> None:
    """Whatever fatal error exists anywhere in the package, `--help` says what its code means."""
    for module in pkgutil.walk_packages(enricher.__path__, "enricher."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    cli = importlib.import_module("enricher.cli")
    assert {
        cls.exit_code for cls in below(FatalError) if cls.__module__.startswith("enricher")
    } <= cli.EXIT_CODES.keys()
    assert {0, 1} <= cli.EXIT_CODES.keys()


@pytest.mark.parametrize("fatal", [False, True])
def test_every_code_of_the_client_becomes_one_of_our_errors(*, fatal: bool) -> None:
    """Trouble, a refusal or fencing: nothing is left that the loop would not know what to do about."""
    assert len(CODES) > 150, "the client keeps its codes elsewhere"
    for code in CODES:
        error = our_error(KafkaError(code, "reason", fatal=fatal), "testing", ClientErrors())
        assert type(error) in {TransactionTrouble, BrokerError, ProducerFenced}
        assert "testing" in str(error)


@pytest.mark.parametrize(
    ("code", "ours"),
    [
        (KafkaError._FENCED, ProducerFenced),
        (KafkaError.PRODUCER_FENCED, ProducerFenced),
        (KafkaError.INVALID_PRODUCER_EPOCH, ProducerFenced),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, BrokerError),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, BrokerError),
        (KafkaError._AUTHENTICATION, BrokerError),
        (KafkaError._TIMED_OUT, TransactionTrouble),
        (KafkaError._TRANSPORT, TransactionTrouble),
        (KafkaError.ILLEGAL_GENERATION, TransactionTrouble),
        (KafkaError.INVALID_PRODUCER_ID_MAPPING, TransactionTrouble),
        (KafkaError.COORDINATOR_NOT_AVAILABLE, TransactionTrouble),
    ],
)
def test_codes_are_sorted_by_what_to_do_about_them(code: int, ours: type[EnricherError]) -> None:
    """Fencing is looked into, a missing right ends the process and says which, all else may pass."""
    assert ours is type(our_error(KafkaError(code), "testing", ClientErrors()))


def test_nothing_foreign_passes_the_border() -> None:
    """An exception of the client leaves as ours, with the client's as its cause, even one that holds no KafkaError."""
    for argument in (KafkaError(KafkaError._TIMED_OUT), "only a text"):
        with pytest.raises(TransactionTrouble) as caught, mapping_errors("testing", ClientErrors()):
            raise KafkaException(argument)
        assert isinstance(caught.value.__cause__, KafkaException)
    with pytest.raises(ValueError, match="ours"), mapping_errors("testing", ClientErrors()):
        raise ValueError("ours")


def test_vague_errors_carry_the_last_word_of_the_client() -> None:
    """`timed out` alone helps nobody; what the client complained of before does."""
    client_errors = ClientErrors()
    client_errors(KafkaError(KafkaError._RESOLVE, "no such host"))
    assert "no such host" in str(our_error(KafkaError(KafkaError._TIMED_OUT), "testing", client_errors))
    assert "no such host" not in str(our_error(KafkaError(KafkaError.UNKNOWN_MEMBER_ID), "testing", client_errors))
