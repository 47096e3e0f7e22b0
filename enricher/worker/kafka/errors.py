"""Errors of the Kafka clients: kept, explained, and mapped to ours. No `KafkaException` leaves this package.

A call that fails often says only that it timed out. The reason comes earlier, in the client's error callback, so
`ClientErrors` keeps it. Whether a right is missing shows in two ways: the broker refuses a request (`needed_after`), or it
says in advance what it allows (`Right.is_missing`). It cannot be asked in advance about a transactional id.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, TopicDescription

from enricher.errors import (
    BrokerError,
    EnricherError,
    MissingTopic,
    NoAnswer,
    ProducerFenced,
    SettingsError,
    TransactionTrouble,
)
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.tokens import Tokens
from enricher.worker.runtime.repeats import Repeats

log = logging.getLogger("librdkafka")

_MISSING: Final[Mapping[int, str]] = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "READ on a topic to read it, WRITE to write to it",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "READ on the consumer group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "WRITE on the transactional id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the right to use this cluster",
}
"""The right behind each refusal, for a client without a worker's configuration."""
DENIED: Final = frozenset(_MISSING)
"""The codes of the broker's errors for a missing right."""
# Either side refuses the other's credentials or certificate: trying again changes nothing.
_CREDENTIALS: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED})  # noqa: SLF001  the client's name
REPEAT_S = 60.0
"""Seconds until an error is logged again: 60 lines for an outage of an hour. librdkafka alone writes two a second."""
# The parts that differ between two lines about the same problem: how long the attempt took and how many lines were
# suppressed, the number of our client, and the partitions of a topic that a transaction could not have.
_VARIES = re.compile(r" \(after \d+ ?ms.*\)|#(?:producer|consumer)-\d+| \[\d+\](?= to transaction)")
_OFFSETS_GONE = "offset reset"
# Said of every producer that a newer one has replaced, nearly always ours: a recovery opens the new one first, and closing
# the old one says this. If it was in use, the process ends and says so.
_FENCED_LINE = "fenced by a newer instance"
_REFUSED_TOPIC = re.compile(r'partition "([^"]+)" .*Topic authorization failed')
_REFUSED_TLS = re.compile(r"\balert\b|certificate could not be verified|certificate verify failed")
# Causes that the client does not name in words that a person can act on.
_HINTS = {
    # TLS has one word for each case; a broker in Java says `certificate unknown` in nearly all of them.
    r"alert (bad certificate|certificate \w+|unknown ca|handshake failure)": "the broker does not accept this client's "
    "certificate (ssl.certificate.location): it is missing, expired, or not from a CA that the broker trusts",
    # The client says this itself, unless the handshake failed with its first packet.
    r"certificate verify failed(?!.*could not be verified)": "the broker certificate could not be verified: is "
    "ssl.ca.location the CA that signed it?",
    r"Disconnected.* in state SSL_HANDSHAKE": "this may be a listener without TLS, see security.protocol",
}
_NO_REASON = "no reason was given: is the address right, and is security.protocol what this listener speaks?"
_TOKENLESS = "Failed to acquire SASL OAUTHBEARER token"
_OIDC_FAILED = re.compile(r"Failed to retrieve \w+ token from .*\((-?\d+)\)$", re.DOTALL)
"""librdkafka's log line about its request for a token; the error that follows lacks the status of HTTP, -1 without one."""
_PASSING = re.compile(r"-1|408|425|429|5\d\d")
_FILES = {
    "ssl.ca.location": " (does this file exist, with certificates in PEM?)",
    "ssl.certificate.location": " (does this file exist, with a certificate in PEM?)",
    "ssl.key.location": " (does this file exist, with a key in PEM, and is ssl.key.password its password?)",
}
_Client = TypeVar("_Client")
Polled = Consumer | Producer | AdminClient
"""A client that runs its callbacks when it is polled."""

UNREADABLE = KafkaError._BAD_COMPRESSION  # noqa: SLF001  the client's name
"""The client cannot decompress a batch. Its checksum was valid, since `check.crcs` cannot be switched off, so another fetch
has the same result."""
# librdkafka always gives the first one, without the broker's code. The cause may be a newer process, a late InitProducerId
# of this process, or a transaction that the broker timed out (seen on Kafka 4.3.1 with librdkafka 2.16).
_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}  # noqa: SLF001  the client's name


def our_error(error: KafkaError, doing: str, client_errors: ClientErrors) -> EnricherError:
    """Our error for `error`, which occurred while `doing` something: its class says what the caller must do."""
    text = f"{doing}: {client_errors.explain(error)}"
    if error.code() in _FENCED:
        return ProducerFenced(text)
    if error.code() in _CREDENTIALS and client_errors.token_missing:
        return TransactionTrouble(text)
    if needed := needed_after(error.code(), text, client_errors.config, client_errors.refused_topics):
        message = f"{text.rstrip('.')}. Needed: {needed}"
        return BrokerError(message)
    return TransactionTrouble(text)


def transient_error(error: KafkaError, doing: str, client_errors: ClientErrors) -> EnricherError:
    """Our error for one that waiting solves; raises BrokerError for any other."""
    trouble = our_error(error, doing, client_errors)
    if isinstance(trouble, BrokerError):
        raise trouble
    if error.fatal():
        raise BrokerError(str(trouble))
    return trouble


@contextmanager
def mapping_errors(doing: str, client_errors: ClientErrors, client: Polled | None = None) -> Iterator[None]:
    """Map what the client raises in the body.

    Polls `client` first, because only a callback tells why a connection failed. It must not be a consumer that reads.
    """
    try:
        yield
    except KafkaException as exception:
        if client is not None:
            with suppress(KafkaException):
                client.poll(0)
        error = exception.args[0]
        if not isinstance(error, KafkaError):
            message = f"{doing}: {error}"
            raise TransactionTrouble(message) from exception
        raise our_error(error, doing, client_errors) from exception


@contextmanager
def broker_errors(client: Polled, doing: str, complaint: Complaint) -> Iterator[None]:
    """Maps, for commands, what the client raises in the body to BrokerError (or another FatalError)."""
    with without_recovery(), mapping_errors(doing, complaint, client):
        yield


@contextmanager
def without_recovery() -> Iterator[None]:
    """Turns what a worker would recover from into NoAnswer, for commands, and a topic that is missing into BrokerError."""
    try:
        yield
    except MissingTopic as error:
        raise BrokerError(str(error)) from error
    except TransactionTrouble as error:
        raise NoAnswer(str(error)) from error


@contextmanager
def connecting(client_errors: ClientErrors) -> Iterator[None]:
    """Adds the address to TransactionTrouble of a client's first requests; refused credentials raise BrokerError.

    The calls themselves only say that they timed out. Not for later requests, when the last error may be an old one.
    """
    try:
        yield
    except MissingTopic:
        raise  # a broker has answered
    except TransactionTrouble as trouble:
        where = f" with {client_errors.config.bootstrap_servers}" if client_errors.config else ""
        message = f"not connected{where}: {trouble}"
        raise (BrokerError if client_errors.refused else TransactionTrouble)(message) from trouble


def new_client(kind: Callable[..., _Client], properties: Mapping[str, Any], client_errors: ClientErrors) -> _Client:
    """A client of this class, whose errors and log lines go to `client_errors`. With `kafka.token` it may block for a while.

    Raises SettingsError if librdkafka rejects the properties. Without a token raises BrokerError or TransactionTrouble;
    for a command's client NoAnswer instead of the latter.
    """
    client_errors.tokens = properties.get("oauth_cb")
    with without_recovery() if isinstance(client_errors, Complaint) else nullcontext():
        if client_errors.tokens is not None:
            client_errors.tokens.ask()
        try:
            return kind({**properties, "error_cb": client_errors}, logger=client_errors.logger)
        except KafkaException as exception:
            error = exception.args[0]
            # confluent-kafka's own, with a request to nobody: its thread has set no token.
            if error.code() == KafkaError.SASL_AUTHENTICATION_FAILED and client_errors.tokens is not None:
                raise TransactionTrouble(str(client_errors.tokens.trouble or error.str())) from exception
            hint = next((hint for file, hint in _FILES.items() if f"{file} failed" in error.str()), "")
            message = f"kafka.properties: {error.str()}{hint}"
            raise SettingsError(message) from exception


class ClientErrors:
    """Keeps the last error of a client, and passes its log lines on to the common logger.

    `config`: of the worker whose client it is; without it messages cannot name topics, group and transactional id.
    """

    def __init__(self, config: KafkaConfig | None = None) -> None:
        self.config = config
        self.refused_topics: set[str] = set()
        """Topics that the client's log says were refused. Its errors do not name them."""
        self.logger = logging.Logger("librdkafka")  # noqa: LOG001  in front of the common one, which it passes on to
        self.logger.parent = log
        self.logger.setLevel(logging.DEBUG)  # `_is_logged` decides about every line
        self.logger.addFilter(self._is_logged)
        self.refused = False
        """Whether the last error was about credentials or certificates, so that waiting does not help."""
        self.tokens: Tokens | None = None
        """The source of the client's tokens; None without `kafka.token`, and with `oidc`."""
        self._oidc_silent = False
        """Whether librdkafka got no answer when its own last request for a token failed."""
        self.answered = False
        """Whether a broker has ever answered: then address and protocol are right."""
        self.last = ""
        """The last error in words; empty if there was none."""
        self._repeats = Repeats(period_s=REPEAT_S)

    def __call__(self, error: KafkaError) -> None:
        """The client's `error_cb`. Must not raise. 'All brokers are down' follows every reason and would hide it."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001  the client's name
            self.last = self._text_of(error)
            refused = error.code() in _CREDENTIALS or bool(_REFUSED_TLS.search(self.last))
            self.refused = refused and not self.token_missing
            if self._repeats.is_new(_without_what_varies(error.str())):
                self.say(self.last)

    def say(self, text: str) -> None:
        """Log the text at once: the call that fails because of the error may take a while to return."""
        log.warning("%s", text)

    def explain(self, error: KafkaError) -> str:
        """The error, and the last one from the callback if this one says too little."""
        vague = error.code() in {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}  # noqa: SLF001  the client's names
        text = self._text_of(error)
        if not vague:
            return text
        said = [f"the client said before: {self.last}"] if self.last else []
        hints = [hint for pattern, hint in _HINTS.items() if re.search(pattern, self.last)]
        if not self.last and not self.answered:
            hints.append(_NO_REASON)
        return f"{text} ({'; '.join(said + hints)})" if said or hints else text

    @property
    def token_missing(self) -> bool:
        """Whether there is no token because its provider does not answer, so that waiting may help."""
        return self._oidc_silent if self.tokens is None else isinstance(self.tokens.trouble, TransactionTrouble)

    def _text_of(self, error: KafkaError) -> str:
        """The error's name and text. About a token, `tokens` knows more than the client says."""
        text = f"{error.name()}: {error.str()}"
        if error.code() not in _CREDENTIALS or self.tokens is None:
            return text
        if self.tokens.trouble:
            return f"{error.name()}: {self.tokens.trouble}"
        return text if _TOKENLESS in text else f"{text}; {self.tokens.after_refusal()}"

    def _is_logged(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if match := _OIDC_FAILED.search(text):
            self._oidc_silent = bool(_PASSING.fullmatch(match[1]))
        if _FENCED_LINE in text:  # librdkafka logs it as critical
            record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
            record.msg, record.args = (
                f"a producer that was replaced by a newer one ends; no action is needed: {text}",
                (),
            )
            text = record.getMessage()
        if match := _REFUSED_TOPIC.search(text):
            self.refused_topics.add(match[1])
        # That records were deleted before they were read is told by a warning, and nowhere else.
        wanted = log.isEnabledFor(record.levelno) or _OFFSETS_GONE in text
        return wanted and (record.levelno < logging.INFO or self._repeats.is_new(_without_what_varies(text)))


class Complaint(ClientErrors):
    """Collects errors of a command's clients. Logs none: the call that fails by the last one shows it."""

    def say(self, text: str) -> None:
        """Log nothing."""

    def _is_logged(self, record: logging.LogRecord) -> bool:
        super()._is_logged(record)
        return False


def _without_what_varies(text: str) -> str:
    """The text by which a line counts as a repeat of another one."""
    return _VARIES.sub("", text)


@dataclass(frozen=True, slots=True)
class Right:
    """An operation on a resource, as Kafka's ACLs name them."""

    operation: str
    resource: str

    def __str__(self) -> str:
        return f"{self.operation} on the {self.resource}"

    def is_missing(self, allowed: Collection[str] | None) -> bool:
        """Whether it is none of the operations that the broker allows; False if the broker does not say."""
        return allowed is not None and self.operation not in allowed


def topic_rights(config: KafkaConfig) -> dict[str, Right]:
    """The right on each of the topics, by the topic."""
    written = {config.output_topic: "WRITE", config.dead_letter_topic: "WRITE"}
    operations = dict.fromkeys(config.inputs, "READ") | written
    return {topic: Right(operation, f"topic '{topic}'") for topic, operation in operations.items()}


def group_right(config: KafkaConfig) -> Right:
    """The right on the consumer group."""
    return Right("READ", f"group '{config.group_id}'")


def transactional_id_right(config: KafkaConfig) -> Right:
    """The right on this worker's transactional id."""
    return Right("WRITE", f"transactional id '{config.transactional_id}'")


def operations_of(description: ConsumerGroupDescription | TopicDescription) -> frozenset[str] | None:
    """The operations that the broker allows this client (`WRITE`, `READ`, ...), if it was asked; None if it does not say.

    No operations at all mean that it does not say: seeing a topic or group is a right, too.
    """
    return frozenset(operation.name for operation in description.authorized_operations or ()) or None


def needed_after(code: int, text: str, config: KafkaConfig | None, refused_topics: Collection[str]) -> str | None:
    """Names the right that is missing if a request failed with this error; None if that is not the reason.

    The right has the resource's name if the client is a worker's. `text`: the error's, which may name topics.
    `refused_topics`: the topics that the client's log named.
    """
    if code in _CREDENTIALS:
        return "valid credentials"
    if config is None:
        return _MISSING.get(code)
    match code:
        case KafkaError.TOPIC_AUTHORIZATION_FAILED:
            rights = topic_rights(config)
            # One topic's name may be part of another one's.
            named = [topic for topic in rights if re.search(rf"(?<![\w.-]){re.escape(topic)}(?![\w.-])", text)]
            topics = named or sorted(rights.keys() & refused_topics) or rights
            return ", ".join(str(rights[topic]) for topic in topics)
        case KafkaError.GROUP_AUTHORIZATION_FAILED:
            return str(group_right(config))
        case KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return str(transactional_id_right(config))
        case _:
            return _MISSING.get(code)
