"""Tokens for the brokers from the identity that a cloud gives this process (`kafka.token`), for all of its Kafka clients.

librdkafka asks for a token with `oauth_cb`, in a thread of each client: when the client is made, after 80 % of a token's
life, and 10 s after a failure. confluent-kafka drops what the callback raises, and a constructor that gets no token in time
only says so, after 10 s. So `errors.new_client` asks before it makes a client, and `Tokens` keeps the reason of a failure.
A constructor looks for its first token once a second, so each new client costs a second (confluent-kafka 2.16).

A cloud's library keeps its tokens and renews them before they end, but bounds its requests in its own way or not at all
(azure-identity: 300 s), so it is asked in another thread. No message contains a token. `errors` has what brokers say
about one.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any, Generic, TypeVar

from enricher.distribution import install_command, installed_version
from enricher.errors import BrokerError, EnricherError, RecoveryExhausted, SettingsError, TransactionTrouble
from enricher.worker.runtime.deadlines import Deadline, until
from enricher.worker.runtime.repeats import Repeats

log = logging.getLogger(__name__)

_ENOUGH_S = 5.0
"""A token that ends sooner is not used: connecting with it takes a while, and clocks differ by some seconds."""
_ASK_AGAIN_S = 1.0
_REPEAT_S = 60.0
_MAX_REASON_CHARS = 1_000
_REQUEST_S = 5.0
"""The bound of each request for credentials to AWS, which is tried twice."""
_MSK_TOKEN_S = 900
"""The life of a token for Amazon MSK, the longest that it accepts."""
_MSK_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_GOOGLES = ".cloud.goog"
_LIBRARIES = "azure", "botocore", "google.auth", "msal"
_Answer = TypeVar("_Answer")


def login_properties(kind: str, bootstrap_servers: str, timeout_s: float) -> dict[str, Any]:
    """The properties with which every client signs in; none if `kind` is empty. Connects to nothing.

    `timeout_s`: how long the identity's library may take for a token. Raises SettingsError if its package is missing, and
    for brokers that must not see its token.
    """
    if not kind:
        return {}
    made: dict[str, Any] = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    if kind == "oidc":
        return made | {"sasl.oauthbearer.method": "oidc"}
    hosts = [server.strip().rpartition(":")[0] for server in bootstrap_servers.split(",")]
    # Other clouds' tokens are for a namespace or a request. This one is for all of Google's cloud, and a settings file that
    # somebody else has written may name the brokers.
    if kind == "gcp" and not all(host.endswith(_GOOGLES) for host in hosts):
        message = f"kafka.token=gcp: all of kafka.bootstrap_servers must be Google's, HOST{_GOOGLES}:PORT"
        raise SettingsError(message)
    return made | {"oauth_cb": tokens_of(kind, hosts[0], timeout_s)}


@cache
def tokens_of(kind: str, host: str, timeout_s: float) -> Tokens:
    """The source of tokens for all clients of the process: they share it, because its library keeps the tokens."""
    _quieten()
    try:
        ask = {"msk-iam": _msk_tokens, "azure": _azure_tokens, "gcp": _google_tokens}[kind](host)
    except ImportError as error:
        extra = {"msk-iam": "aws"}.get(kind, kind)
        message = f"kafka.token={kind} needs more packages ({error.name}): {install_command(extra)}"
        raise SettingsError(message) from error
    return Tokens(f"kafka.token={kind}", ask, timeout_s)


def wait_for_token(login: Mapping[str, Any], timeout_s: float) -> None:
    """Wait until there is a token, if these are the properties of clients that need one.

    Raises BrokerError if it is refused, and RecoveryExhausted if there is none in time.
    """
    tokens: Tokens | None = login.get("oauth_cb")
    if tokens is None:
        return
    repeats = Repeats(period_s=_REPEAT_S)

    def ask() -> bool:
        try:
            tokens.ask()
        except TransactionTrouble as trouble:
            if repeats.is_new("away"):
                log.warning("waiting for a token: %s", trouble)
            return False
        return True

    if not until(ask, Deadline(timeout_s), pause_s=_ASK_AGAIN_S):
        message = f"no token for the brokers within {timeout_s:g} s, last: {tokens.trouble}"
        raise RecoveryExhausted(message)


@dataclass(frozen=True, slots=True)
class Token:
    """The text that a client shows the brokers, and when it ends, in seconds since the epoch."""

    value: str = field(repr=False)
    expires_s: float


class Question(Generic[_Answer]):
    """Asks a library, and waits for `timeout_s` at most. For any thread.

    While a question hangs, no other one is asked: all wait for the same answer, so at most one thread hangs.
    """

    def __init__(self, name: str, ask: Callable[[], _Answer], timeout_s: float) -> None:
        self._name = name
        self._ask = ask
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._pending: Future[_Answer] | None = None

    def answer(self) -> _Answer:
        """The answer. Raises BrokerError if the identity is refused, TransactionTrouble if there is none at the moment."""

        def ask(pending: Future[_Answer]) -> None:
            try:
                answer = self._ask()
            except Exception as error:  # noqa: BLE001  raised below, in each thread that waits
                pending.set_exception(error)
            else:
                pending.set_result(answer)

        with self._lock:
            pending = self._pending
            if pending is None or pending.done():
                pending = self._pending = Future()
                threading.Thread(target=ask, args=(pending,), name="identity", daemon=True).start()
        try:
            return pending.result(self._timeout_s)
        except TimeoutError:
            raise TransactionTrouble(f"{self._name}: no answer within {self._timeout_s:g} s") from None
        except Exception as error:  # noqa: BLE001  of one of three libraries, and of what they use
            text = " ".join(str(error).split())[:_MAX_REASON_CHARS]
            if _is_refusal(error):
                raise BrokerError(f"{self._name}: the identity is refused: {type(error).__name__}: {text}") from None
            raise TransactionTrouble(f"{self._name}: {type(error).__name__}: {text}") from None


class Tokens:
    """The `oauth_cb` of all clients with this identity."""

    def __init__(
        self, name: str, ask: Callable[[], Token], timeout_s: float, clock: Callable[[], float] = time.time
    ) -> None:
        self.name = name
        self.trouble: EnricherError | None = None
        """Why there is no token; None while there is one."""
        self._question = Question(name, ask, timeout_s)
        self._clock = clock
        self._last: Token | None = None
        self._repeats = Repeats(period_s=_REPEAT_S)

    def __call__(self, _config: str) -> tuple[str, float]:
        """The token and its end, in seconds since the epoch. `_config`: `sasl.oauthbearer.config`, which is not used."""
        try:
            token = self.ask()
        except EnricherError as trouble:
            if self._repeats.is_new("none"):  # confluent-kafka drops the reason, and asks again after 10 s
                log.warning("no token for the brokers: %s", trouble)
            raise
        return token.value, token.expires_s

    def ask(self) -> Token:
        """A token; the last one, as long as it is valid, if there is no new one.

        Blocks for the timeout at most. Raises BrokerError if the identity is refused, TransactionTrouble otherwise.
        """
        try:
            token = self._usable(self._question.answer())
        except EnricherError as trouble:
            last_s = self._last.expires_s - self._clock() if self._last else 0.0
            if self._last is None or last_s < _ENOUGH_S:
                self.trouble = trouble
                raise
            if self._repeats.is_new("kept"):
                log.warning("no new token for the brokers, the last one ends in %.0f s: %s", last_s, trouble)
            token = self._last
        self.trouble, self._last = None, token
        return token

    def after_refusal(self) -> str:
        """The advice for a token that the brokers refuse."""
        now = datetime.fromtimestamp(self._clock(), UTC)
        return (
            f"the brokers refuse the token of {self.name}: this identity may not connect, or the clock of this machine is "
            f"wrong (it says {now:%Y-%m-%d %H:%M:%S} UTC)"
        )

    def _usable(self, token: Token) -> Token:
        now_s = self._clock()
        if token.expires_s - now_s >= _ENOUGH_S:
            return token
        expires, now = (datetime.fromtimestamp(each, UTC) for each in (token.expires_s, now_s))
        message = (
            f"{self.name}: the token ends at {expires:%Y-%m-%d %H:%M:%S} UTC, and the clock of this machine says "
            f"{now:%Y-%m-%d %H:%M:%S}: is it right?"
        )
        raise TransactionTrouble(message)


def _quieten() -> None:
    """Raise the libraries' log level: at lower ones they log signatures, session tokens and every request."""
    for library in _LIBRARIES:
        logging.getLogger(library).setLevel(logging.ERROR)


class NoCredentials(Exception):
    """The library finds no identity, or what would give one does not answer."""


class AwsIdentity:
    """The credentials of this process, found as all of Amazon's tools find them. Raises ImportError without botocore."""

    def __init__(self) -> None:
        import botocore.config  # noqa: PLC0415  of the extra
        import botocore.session  # noqa: PLC0415  of the extra

        _quieten()
        self._session = botocore.session.Session()
        once_more = {"total_max_attempts": 2}
        requests = botocore.config.Config(connect_timeout=_REQUEST_S, read_timeout=_REQUEST_S, retries=once_more)
        self._session.set_default_client_config(requests)

    @property
    def region(self) -> str | None:
        """The region of the environment or of the configuration file."""
        return os.environ.get("AWS_REGION") or self._session.get_config_variable("region")

    def credentials(self) -> Any:  # noqa: ANN401  botocore's
        """Key, secret and session token, valid for a while. May block for long; raises the errors of botocore."""
        found = self._session.get_credentials()
        if found is None:
            raise NoCredentials(
                "neither variables nor files have AWS credentials, and no metadata server gives any in time"
            )
        return found.get_frozen_credentials()


def _msk_tokens(host: str) -> Callable[[], Token]:
    """Each token is a request to connect, signed here for 15 minutes: nothing is fetched but credentials."""
    from botocore.auth import SigV4QueryAuth  # noqa: PLC0415  of the extra
    from botocore.awsrequest import AWSRequest  # noqa: PLC0415  of the extra

    identity = AwsIdentity()
    found = _MSK_HOST.search(host)
    region = found[1] if found else identity.region
    if not region:
        raise SettingsError("kafka.token=msk-iam: the brokers' names do not contain the region; set AWS_REGION to it")
    agent = f"enricher-{installed_version()}"

    def ask() -> Token:
        credentials, begins_s = identity.credentials(), time.time()
        action = {"Action": "kafka-cluster:Connect"}
        request = AWSRequest("GET", f"https://kafka.{region}.amazonaws.com/", params=action)
        SigV4QueryAuth(credentials, "kafka-cluster", region, expires=_MSK_TOKEN_S).add_auth(request)
        return Token(_base64(f"{request.url}&User-Agent={agent}"), begins_s + _MSK_TOKEN_S)

    return ask


def _azure_tokens(host: str) -> Callable[[], Token]:
    from azure.identity import DefaultAzureCredential  # noqa: PLC0415  of the extra

    # Without what only a developer's machine has, but for `az login`: a message has a part for each.
    others = "shared_token_cache", "visual_studio_code", "developer_cli", "powershell", "broker"
    identity = DefaultAzureCredential(**{f"exclude_{name}_credential": True for name in others})

    def ask() -> Token:
        token = identity.get_token(f"https://{host}/.default")
        return Token(token.token, float(token.expires_on))

    return ask


def _google_tokens(_host: str) -> Callable[[], Token]:
    """Google's brokers take an access token in the form of a JWT, with the token as its signature."""
    import google.auth  # noqa: PLC0415  of the extra
    import urllib3  # noqa: PLC0415  of the extra
    from google.auth.transport.urllib3 import Request  # noqa: PLC0415  of the extra

    request = Request(urllib3.PoolManager())  # type: ignore[no-untyped-call]
    identity: Any = None

    def ask() -> Token:
        nonlocal identity
        if identity is None:
            identity, _project = google.auth.default(scopes=[_GOOGLE_SCOPE], request=request)
        if not identity.valid:
            identity.refresh(request)
        account = getattr(identity, "service_account_email", None)
        if not account:
            raise NoCredentials("these credentials are of no service account, whose name the brokers need")
        expires_s = identity.expiry.replace(tzinfo=UTC).timestamp()
        header = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
        claims = {"exp": expires_s, "iat": time.time(), "iss": "Google", "sub": account}
        parts = json.dumps(header), json.dumps(claims), identity.token
        return Token(".".join(map(_base64, parts)), expires_s)

    return ask


def _base64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


_PASSING = frozenset({408, 425, 429})
"""Statuses of HTTP below 500 that say nothing about the identity."""


def _is_refusal(error: Exception) -> bool:
    """Whether the identity's provider has answered that it gives this process no token."""
    if isinstance(response := getattr(error, "response", None), Mapping):  # botocore
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return 400 <= status < 500 and status not in _PASSING
    if "AADSTS" in str(
        error
    ):  # the number of an answer of Azure's; its class and status are the same without any answer
        return True
    # Of google-auth; a failed connection is the reason of an error that says that it cannot be tried again.
    refused = type(error).__name__ == "RefreshError" and not getattr(error, "retryable", True)
    return refused and type(error.__cause__).__name__ != "TransportError"
