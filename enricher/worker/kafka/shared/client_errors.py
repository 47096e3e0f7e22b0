"""Makes clients, and keeps the errors and log lines that they give besides their exceptions.

A call that fails often says only that it timed out. The reason comes earlier, in the error callback.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from enricher.errors import SettingsError
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.runtime.repeats import Repeats

log = logging.getLogger("librdkafka")

REPEAT_S = 60.0
"""Seconds until an error is logged again: 60 lines for an outage of an hour. librdkafka alone writes two a second."""
# The parts that differ between two lines about the same problem: how long the attempt took and how many lines were
# suppressed, the number of our client, and the partitions of a topic that a transaction could not have.
_VARIES = re.compile(r" \(after \d+ ?ms.*\)|#(?:producer|consumer)-\d+| \[\d+\](?= to transaction)")

_OFFSETS_GONE = "offset reset"
# Said of every producer that a newer one has replaced, nearly always ours: a recovery opens the new one first, and closing
# the old one says this. If it was in use, the process ends and says so.
_FENCED = "fenced by a newer instance"
_REFUSED_TOPIC = re.compile(r'partition "([^"]+)" .*Topic authorization failed')
# Either side refuses the other's credentials or certificate: trying again changes nothing.
_REFUSALS = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}  # noqa: SLF001  the client's name
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
_FILES = {
    "ssl.ca.location": " (does this file exist, with certificates in PEM?)",
    "ssl.certificate.location": " (does this file exist, with a certificate in PEM?)",
    "ssl.key.location": " (does this file exist, with a key in PEM, and is ssl.key.password its password?)",
}
_Client = TypeVar("_Client")


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
        self.answered = False
        """Whether a broker has ever answered: then address and protocol are right."""
        self._text = ""
        self._repeats = Repeats(period_s=REPEAT_S)

    def __call__(self, error: KafkaError) -> None:
        """The client's `error_cb`. Must not raise. 'All brokers are down' follows every reason and would hide it."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001  the client's name
            self._text = f"{error.name()}: {error.str()}"
            self.refused = error.code() in _REFUSALS or bool(_REFUSED_TLS.search(self._text))
            if self._repeats.is_new(_without_what_varies(self._text)):
                self.say(self._text)

    def say(self, text: str) -> None:
        """Log it at once: the call that fails because of it may take a while to return."""
        log.warning("%s", text)

    def explain(self, error: KafkaError) -> str:
        """The error, and the last one from the callback if this one says too little."""
        vague = error.code() in {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}  # noqa: SLF001  the client's names
        text = f"{error.name()}: {error.str()}"
        if not vague:
            return text
        said = [f"the client said before: {self._text}"] if self._text else []
        hints = [hint for pattern, hint in _HINTS.items() if re.search(pattern, self._text)]
        if not self._text and not self.answered:
            hints.append(_NO_REASON)
        return f"{text} ({'; '.join(said + hints)})" if said or hints else text

    def _is_logged(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if _FENCED in text:  # librdkafka logs it as critical
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


def new_client(kind: Callable[..., _Client], properties: Mapping[str, Any], client_errors: ClientErrors) -> _Client:
    """A client of this class, whose errors and log lines go to `client_errors`.

    Raises SettingsError if librdkafka rejects the properties.
    """
    try:
        return kind({**properties, "error_cb": client_errors}, logger=client_errors.logger)
    except KafkaException as exception:
        text = exception.args[0].str()
        hint = next((hint for file, hint in _FILES.items() if f"{file} failed" in text), "")
        message = f"kafka.properties: {text}{hint}"
        raise SettingsError(message) from exception


def _without_what_varies(text: str) -> str:
    """The text by which a line counts as a repeat of another one."""
    return _VARIES.sub("", text)
