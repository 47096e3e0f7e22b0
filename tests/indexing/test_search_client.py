"""Both clients send the same requests; what answers mean; how to sign in. On a stand-in: no real Elasticsearch is had."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trustme
from support.closing import CLOSING
from support.clouds import Cloud, serving_cloud
from support.search_server import Behaviour, SearchServer, cut_before, garble, hang, refuse, serving

from enricher.errors import BrokerError, RecoveryExhausted, SearchUnavailable, SettingsError
from enricher.indexing import search_clients
from enricher.indexing.search_clients import open_index
from enricher.indexing.search_index import SearchIndex
from enricher.worker.settings import IndexSettings

INDEX_LINES = b'{"index":{"_id":"a","version":7,"version_type":"external_gte"}}\n{"id":"a"}\n'
DELETE_LINE = b'{"delete":{"_id":"a","version":6,"version_type":"external_gte"}}\n'


@pytest.fixture(params=["opensearch", "elasticsearch"])
def search(request: pytest.FixtureRequest) -> Iterator[SearchServer]:
    """A server of either product."""
    with serving(SearchServer(product=request.param)) as server:
        yield server


@pytest.fixture
def index(search: SearchServer) -> SearchIndex:
    """Opened by what the server says that it is."""
    return CLOSING.enter_context(closing(opened(search)))


def opened(search: SearchServer, **settings: object) -> SearchIndex:
    """An index on this server."""
    return open_index(IndexSettings.model_validate({"url": search.url, "give_up_s": 1.0, **settings}))


def test_the_product_is_found(search: SearchServer, index: SearchIndex) -> None:
    """By asking; Elasticsearch's client says who it is in its headers."""
    assert search.product == index.server().product
    is_compatible = "compatible-with=8" in search.headers[-1].get("accept", "")
    assert is_compatible == (search.product == "elasticsearch")


def test_the_newest_version_wins(search: SearchServer, index: SearchIndex) -> None:
    """Items are answered one by one, in order."""
    reply = index.bulk(INDEX_LINES + DELETE_LINE)
    statuses = [item["status"] for each in reply.body["items"] for item in each.values()]
    assert [201, 409] == statuses
    assert {"a": (7, {"id": "a"})} == search.found
    index.refresh()
    assert [("a", 7)] == list(index.versions())


def test_meta_survives(search: SearchServer, index: SearchIndex) -> None:
    """An index is created once, and keeps what is put beside its mapping."""
    assert index.meta() is None
    assert index.create({"mappings": {"_meta": {"x": 1}}})
    assert not index.create()
    index.put_meta({**(index.meta() or {}), "enricher": {"epoch": 0}})
    assert {"x": 1, "enricher": {"epoch": 0}} == index.meta()
    index.put_template("articles", {"index_patterns": ["articles*"]})
    assert {"articles": {"index_patterns": ["articles*"]}} == search.templates


def test_half_of_the_versions_is_none(search: SearchServer, index: SearchIndex) -> None:
    """A search of which shards failed has status 200 all the same; what is missing would seem to be lost."""
    index.bulk(INDEX_LINES)
    search.failed_shards = 1
    with pytest.raises(SearchUnavailable, match="some shards did not answer"):
        list(index.versions())


@pytest.mark.parametrize("garbage", [{"status": "ok"}, {"hits": 7}, {"articles": "x"}])
def test_json_of_another_kind_may_be_asked_for_again(
    index: SearchIndex, monkeypatch: pytest.MonkeyPatch, garbage: dict[str, object]
) -> None:
    """A proxy in front of the nodes may answer with its own."""
    monkeypatch.setattr(SearchServer, "answer", lambda *_request: (200, garbage))
    for ask in (index.meta, lambda: list(index.versions())):
        with pytest.raises(SearchUnavailable, match="not the index's"):
            ask()


@pytest.mark.parametrize("behaviour", [cut_before, garble, hang])
def test_no_answer_may_be_asked_for_again(
    search: SearchServer, behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the connection is cut, the answer is none, or it does not come in time."""
    monkeypatch.setattr(search_clients, "REQUEST_TIMEOUT_S", 0.2)
    with closing(opened(search)) as index:
        search.behaviours.append(behaviour)
        with pytest.raises(SearchUnavailable):
            index.bulk(INDEX_LINES)
        assert 200 == index.bulk(INDEX_LINES).status
        search.behaviours.append(refuse(429))
        assert 429 == index.bulk(INDEX_LINES).status, "which is for the caller"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"username": "u", "password": "p"}, "Basic dTpw"),
        ({"username": "u", "password_file": "secret"}, "Basic dTpw"),
        ({"api_key": "a2V5"}, "ApiKey a2V5"),
        ({"api_key_file": "secret"}, "ApiKey p"),
    ],
)
def test_credentials_are_sent(search: SearchServer, settings: dict[str, str], expected: str) -> None:
    """Those in files too, which Kubernetes mounts with a line end. A server that knows others refuses, for good."""
    Path("secret").write_text("p\n", "utf-8")
    search.authorization = expected
    with closing(opened(search, **settings)):
        pass
    search.authorization = "another"
    with pytest.raises(BrokerError, match=r"index\.username"):
        opened(search, **settings)


def test_certificates_are_checked(tmp_path: Path) -> None:
    """By the authority of the settings; without it the connection is not made."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with serving(tls=_server_side(authority)) as search:
        opened(search, ca_file=tmp_path / "ca.pem").close()
        with pytest.raises(RecoveryExhausted, match="CERTIFICATE_VERIFY_FAILED"):
            opened(search)


def test_another_node_answers(search: SearchServer) -> None:
    """If one of several is away."""
    with closing(open_index(IndexSettings(url=f"http://127.0.0.1:1,{search.url}", give_up_s=20))) as index:
        answers = [_status(lambda: index.bulk(INDEX_LINES).status) for _ in range(5)]
    assert 200 == answers[-1]


def test_an_index_that_is_away_ends_the_wait() -> None:
    """At the bound, with the reason."""
    with pytest.raises(RecoveryExhausted, match="not reachable for 1 s: does not answer"):
        open_index(IndexSettings(url="http://127.0.0.1:1", give_up_s=1))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"url": "ftp://x"}, "must begin with http"),
        ({"url": "http://u:secret@x"}, "their own settings"),
        ({"password": "secret"}, "a password a username"),
        ({"api_key": "secret", "username": "u", "password": "secret"}, "either an API key or"),
        ({"password": "secret", "password_file": "/x", "username": "u"}, "either password or password_file"),
        ({"name": "_hidden"}, "name"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, str], reason: str) -> None:
    """Without repeating a secret."""
    with pytest.raises(ValueError, match=reason) as refusal:
        IndexSettings.model_validate(settings)
    assert "secret" not in str(refusal.value)


def test_a_url_without_a_host_and_a_secret_without_a_file_are_refused() -> None:
    """With the name of the setting."""
    for url in ("", "http://", "http://x:99999", "http://x?y"):
        with pytest.raises(SettingsError, match=r"index\.url"):
            open_index(IndexSettings(url=url))
    with pytest.raises(SettingsError, match=r"index\.api_key_file.*gone"):
        open_index(IndexSettings(url="http://127.0.0.1:1", api_key_file=Path("gone")))


def _server_side(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


def _status(ask: Callable[[], int]) -> int | None:
    try:
        return ask()
    except SearchUnavailable:
        return None


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    """The metadata server of a node in Amazon's cloud."""
    with serving_cloud(tmp_path) as served:
        for name, value in served.environment("ec2").items():
            monkeypatch.setenv(name, value)
        yield served


def test_requests_are_signed_for_amazon(cloud: Cloud) -> None:
    """The server computes each signature again, and refuses a request without one, and one for another region."""
    with serving(SearchServer(signed_for="eu-west-1/es")) as search:
        with closing(opened(search, aws_region="eu-west-1")) as index:
            index.create({"mappings": {}})
            assert 200 == index.bulk(INDEX_LINES).status
            index.refresh()
            assert [("a", 7)] == list(index.versions())
        for settings in ({}, {"aws_region": "eu-north-1"}):
            with pytest.raises(BrokerError, match=r"403.*index\.aws_region.*a clock that is right"):
                opened(search, **settings)
    assert len([path for path in cloud.asked if path.endswith("/enricher")]) == 2, "credentials are kept"


def test_a_refused_identity_ends_the_indexer(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting does not help."""
    cloud.refuses = True
    for name, value in cloud.environment("irsa").items():
        monkeypatch.setenv(name, value)
    with (
        serving() as search,
        pytest.raises(BrokerError, match=r"index\.aws_region: the identity is refused: .*AccessDenied"),
    ):
        opened(search, aws_region="eu-west-1")


def test_elasticsearch_is_not_signed_for() -> None:
    """Its client signs nothing, and the requests would only be refused."""
    with (
        serving(SearchServer(product="elasticsearch")) as search,
        pytest.raises(SettingsError, match="the server is Elasticsearch"),
    ):
        opened(search, product="elasticsearch", aws_region="eu-west-1")
