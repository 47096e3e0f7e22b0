"""Opens a search index of either product: the clients of OpenSearch and Elasticsearch behind one Protocol.

Only this module knows the two libraries. Both balance over the nodes and avoid a node that does not answer. Neither repeats
a request: `bulk_writer` does, with other sizes and pauses, and knows which of the documents are left.
"""

from __future__ import annotations

import base64
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from enricher.distribution import install_command
from enricher.errors import BrokerError, RecoveryExhausted, SearchUnavailable, SettingsError, TransactionTrouble
from enricher.indexing.search_index import Product, Reply, SearchIndex, Server, Transport
from enricher.worker.kafka.tokens import AwsIdentity, Question
from enricher.worker.runtime.deadlines import Deadline, until
from enricher.worker.runtime.repeats import Repeats
from enricher.worker.settings import IndexSettings

log = logging.getLogger(__name__)

_ASK_AGAIN_S = 0.5
_REPEAT_S = 60.0


def open_index(settings: IndexSettings) -> SearchIndex:
    """The index of the settings, once a node has answered. The caller closes it.

    Asks for at most `index.give_up_s`, then raises RecoveryExhausted. Raises SettingsError, and BrokerError if the server
    refuses us.
    """
    nodes = Nodes.of(settings)
    first = "opensearch" if settings.product == "auto" else settings.product
    index = SearchIndex(open_transport(first, nodes), settings.name)
    try:
        server = _wait_for_server(index, settings.give_up_s)
        if settings.product == "auto" and server.product != first:
            index.close()
            index = SearchIndex(open_transport(server.product, nodes), settings.name)
            server = _wait_for_server(index, settings.give_up_s)
    except BaseException:
        index.close()
        raise
    log.info("the search index is '%s' on %s %s", settings.name, server.product, server.version)
    return index


def _wait_for_server(index: SearchIndex, timeout_s: float) -> Server:
    found: list[Server] = []
    repeats, reason = Repeats(period_s=_REPEAT_S), ""

    def ask() -> bool:
        nonlocal reason
        try:
            found.append(index.server())
        except SearchUnavailable as error:
            reason = str(error)
            if repeats.is_new("away"):
                log.warning("waiting for the search index: %s", reason)
        return bool(found)

    if not until(ask, Deadline(timeout_s), pause_s=_ASK_AGAIN_S):
        message = f"the search index was not reachable for {timeout_s:g} s: {reason}"
        raise RecoveryExhausted(message)
    return found[0]


REQUEST_TIMEOUT_S = 60.0
"""The time in which a node must answer; then the request is repeated. Elasticsearch itself waits 60 s for a slow bulk
request."""
_IDENTITY_S = 15.0
"""How long AWS credentials may take; then the request counts as unanswered. A metadata server answers in milliseconds."""
_DEFAULT_PORTS = {"http": 9200, "https": 443}
_MAX_REASON_CHARS = 200
_NOT_JSON = "answers with something that is no JSON object: is index.url right?"


@dataclass(frozen=True, slots=True)
class Nodes:
    """Addresses of the nodes, and how to sign in. Nothing here connects."""

    urls: tuple[str, ...]
    timeout_s: float
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    aws_region: str = ""
    """The region for which requests are signed; empty: they are not."""

    @classmethod
    def of(cls, settings: IndexSettings) -> Nodes:
        """Read secrets and certificates. Raises SettingsError."""
        urls = tuple(_with_port(url.strip()) for url in settings.url.split(",") if url.strip())
        if not urls:
            raise SettingsError("index.url is missing: say where the search index is, e.g. https://search:9200")
        headers = {}
        if key := settings.key():
            headers["Authorization"] = f"ApiKey {key}"
        elif user := settings.credentials():
            headers["Authorization"] = f"Basic {base64.b64encode(':'.join(user).encode()).decode()}"
        if not all(value.isascii() and value.isprintable() for value in headers.values()):
            raise SettingsError("index.api_key contains line ends or characters beyond ASCII")
        tls = _tls(settings) if any(url.startswith("https:") for url in urls) else None
        return cls(urls, REQUEST_TIMEOUT_S, headers, tls, settings.aws_region)


def open_transport(product: Product, nodes: Nodes) -> Transport:
    """A client of this product. Connects only with its first request. Raises SettingsError if its package is missing."""
    # At level debug they log the bodies of requests. What matters is in the errors.
    for name in ("opensearch", "opensearchpy.trace", "elastic_transport", "elasticsearch"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    if nodes.aws_region and product == "elasticsearch":
        raise SettingsError("index.aws_region signs requests to OpenSearch, and the server is Elasticsearch")
    try:
        return (_OpenSearch if product == "opensearch" else _Elasticsearch)(nodes)
    except ImportError as error:
        extra = "index,aws" if nodes.aws_region else "index"
        message = f"'enricher index' needs more packages ({error.name}): {install_command(extra)}"
        raise SettingsError(message) from error


class _OpenSearch:
    def __init__(self, nodes: Nodes) -> None:
        import opensearchpy  # noqa: PLC0415  of the extra

        self._errors = opensearchpy.exceptions
        more: dict[str, Any] = {"ssl_context": nodes.tls} if nodes.tls else {}
        if nodes.aws_region:
            more["http_auth"] = opensearchpy.Urllib3AWSV4SignerAuth(_AwsCredentials(), nodes.aws_region)
        self._client = opensearchpy.OpenSearch(
            list(nodes.urls), headers=dict(nodes.headers), timeout=nodes.timeout_s, max_retries=0, **more
        )

    def request(
        self, method: str, path: str, *, params: Mapping[str, str], body: bytes | None, content_type: str
    ) -> Reply:
        """Send a request, as `Transport` says."""
        headers = {"content-type": content_type}  # spelled as in the library, which would else send two headers
        try:
            answer = self._client.transport.perform_request(
                method, path, params=dict(params), body=body, headers=headers
            )
        except self._errors.ConnectionError as error:
            if isinstance(error.info, BrokerError):  # of the signature
                raise error.info from error
            if isinstance(error.info, TransactionTrouble):
                raise SearchUnavailable(str(error.info)) from error
            raise SearchUnavailable(_no_answer(error.info or error)) from error
        except self._errors.TransportError as error:
            return Reply(int(error.status_code), error.info)
        except self._errors.SerializationError as error:
            raise SearchUnavailable(_NOT_JSON) from error
        return _successful(200, answer)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class _AwsCredentials:
    """The credentials that the signer of opensearch-py asks for before each request."""

    def __init__(self) -> None:
        self._question = Question("index.aws_region", AwsIdentity().credentials, _IDENTITY_S)

    def get_frozen_credentials(self) -> Any:  # noqa: ANN401  botocore's
        """Raises TransactionTrouble and BrokerError, which opensearch-py takes for a failed connection."""
        return self._question.answer()


class _Elasticsearch:
    def __init__(self, nodes: Nodes) -> None:
        import elasticsearch  # noqa: PLC0415  of the extra

        self._library = elasticsearch
        tls: dict[str, Any] = {"ssl_context": nodes.tls} if nodes.tls else {}
        self._client = elasticsearch.Elasticsearch(
            list(nodes.urls),
            headers=dict(nodes.headers),
            request_timeout=nodes.timeout_s,
            max_retries=0,
            retry_on_timeout=False,
            **tls,
        )

    def request(
        self, method: str, path: str, *, params: Mapping[str, str], body: bytes | None, content_type: str
    ) -> Reply:
        """Send a request, as `Transport` says."""
        headers = {"accept": "application/json"} | ({"content-type": content_type} if body is not None else {})
        try:
            answer = self._client.perform_request(method, path, params=dict(params), body=body, headers=headers)
        except self._library.ApiError as error:
            if isinstance(error, self._library.UnsupportedProductError):
                message = "the server at index.url is not Elasticsearch: set index.product=opensearch"
                raise BrokerError(message) from error
            return Reply(error.meta.status, error.body)
        except self._library.SerializationError as error:
            raise SearchUnavailable(_NOT_JSON) from error
        except self._library.TransportError as error:
            raise SearchUnavailable(_no_answer(error)) from error
        return _successful(answer.meta.status, answer.body)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _successful(status: int, body: Any) -> Reply:  # noqa: ANN401  JSON, or the text of a proxy's page
    if not isinstance(body, dict):
        raise SearchUnavailable(_NOT_JSON)
    return Reply(status, body)


def _no_answer(error: Any) -> str:  # noqa: ANN401  an error of one of three libraries
    return f"does not answer: {type(error).__name__}: {error}"[:_MAX_REASON_CHARS]


def _with_port(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
    except (KeyError, ValueError):
        raise SettingsError("index.url: not a URL, or its port is not a number from 1 to 65535") from None
    if not parts.hostname or parts.query or parts.fragment or not url.isascii() or " " in url:
        raise SettingsError(
            "index.url: a URL names a host, and has no query, fragment, blanks or characters beyond ASCII"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}"


def _tls(settings: IndexSettings) -> ssl.SSLContext:
    try:
        # Without `index.ca_file`: the system's certificates, or SSL_CERT_FILE and SSL_CERT_DIR, and Mozilla's.
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.ca_file is None:
            import certifi  # noqa: PLC0415  comes with the extra

            context.load_verify_locations(certifi.where())
    except ImportError:
        pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        message = f"index.ca_file: {settings.ca_file} cannot be used: {reason}"
        raise SettingsError(message) from None
    return context
