"""What every test folder shares: one real broker, one real schema registry, and fresh topics for each test that asks."""

from __future__ import annotations

import gc
import logging
import os
import re
import shutil
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from support.order import LONGEST_FIRST, SHARING, SLOW
from support.registry_proxy import RegistryProxy
from support.topics import Topics, make_topics

from tools.chaos.proxy import Proxy, nodes_behind_a_proxy
from tools.java_server import JavaServer
from tools.kafka import Cluster
from tools.kafka.versions import DEFAULT, VERSIONS, NotFetched
from tools.opensearch import OpenSearch
from tools.registry import Registry

pytest_plugins = [
    "support.closing",
    "support.loaded",
    "support.logs",
    "support.running",
]

# Our own threads share the tokenizing; read by the library when it is loaded.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# The same for numpy's products: small ones cost less than the threads that would wait for each other. Read at its import.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# As the package itself does, for tests that load ONNX Runtime before it.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

Server = TypeVar("Server", bound=JavaServer)

_LEFT_OUT = re.compile(rb"^pytestmark = \[?pytest\.mark\.(?:broker|long)\b", re.MULTILINE)
"""A file of which `--quick` runs nothing."""

# Timings never decide a test: a machine that others use is slow at any moment.
settings.register_profile("timeless", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("timeless"), max_examples=20)
settings.load_profile("timeless")


def pytest_configure() -> None:
    """Hear SIGINT: a shell that runs the tests in the background has it ignored, and all that they start inherits that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which Kafka the tests with the shared broker run against, and how long those take that have a long form."""
    listed = ", ".join(VERSIONS)
    parser.addoption("--fuzz-records", default=200, type=int, help="hostile records of tests/fuzz/test_fuzz_broker.py")
    parser.addoption("--fuzz-frames", default=20_000, type=int, help="hostile frames of tests/fuzz/test_fuzz_frames.py")
    parser.addoption("--rewrite", action="store_true", help="write the chart's renderings in tests/deploy/ again")
    parser.addoption("--search-url", default="", help="a running Elasticsearch or OpenSearch, instead of the local one")
    parser.addoption("--kafka", default=DEFAULT, metavar="VERSION", help=f"version of the shared broker: {listed}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from a million objects that stay until the end. Tests that compute take a fifth less."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()
    return result


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`--quick` does not import the files of which it runs nothing: that would take as long as its slowest tests."""
    if "not slow" not in config.getoption("markexpr") or collection_path.suffix != ".py":
        return None
    slow = collection_path.relative_to(Path(__file__).parent).as_posix() in SLOW
    return True if slow or _LEFT_OUT.search(collection_path.read_bytes()) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `--quick` leaves out, and begin with the longest files."""
    tests = Path(__file__).parent
    rank = {tests / name: place for place, name in enumerate(LONGEST_FIRST)}
    slow = {tests / name for name in SLOW}
    for item in items:
        if item.path in slow:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a test of the broker that `--quick` would run, and the tests of a file that `SHARING` should have."""
    if "broker_and_proxy" in getattr(item, "fixturenames", ()) and item.get_closest_marker("broker") is None:
        pytest.fail("it needs the broker of the run: mark it as `broker`", pytrace=False)
    file = item.path.relative_to(Path(__file__).parent).as_posix()
    for server, files in SHARING.items():
        if server in getattr(item, "fixturenames", ()) and file not in files:
            pytest.fail(f"{file} asks for `{server}`: add it to SHARING in tests/support/order.py", pytrace=False)


@pytest.fixture(scope="session")
def kafka_version(request: pytest.FixtureRequest) -> str:
    """What `--kafka` asks for."""
    return str(request.config.getoption("kafka"))


@pytest.fixture(scope="session")
def broker_and_proxy(kafka_version: str) -> Iterator[tuple[Proxy, Cluster]]:
    """The broker, and a proxy that leads to it."""
    with nodes_behind_a_proxy(1, version=kafka_version) as both:
        yield both


@pytest.fixture(scope="session")
def broker(broker_and_proxy: tuple[Proxy, Cluster]) -> Cluster:
    """A real Apache Kafka of one node."""
    return broker_and_proxy[1]


@pytest.fixture
def proxy(broker_and_proxy: tuple[Proxy, Cluster]) -> Iterator[Proxy]:
    """The proxy: for who connects through it, the broker can be away or silent. Its rules end with the test."""
    proxy, _ = broker_and_proxy
    yield proxy
    proxy.lift_all()


@pytest.fixture(scope="session")
def registry() -> Iterator[Registry]:
    """A real schema registry; its schemas are shared by the tests, so each takes subjects of its own."""
    yield from _running(Registry())


@pytest.fixture(scope="session")
def opensearch() -> Iterator[OpenSearch]:
    """A real OpenSearch of one node, shared by the tests, so each takes an index of its own."""
    yield from _running(OpenSearch())


@pytest.fixture(scope="session")
def search_url(request: pytest.FixtureRequest) -> str:
    """The URL of a real search index: the shared OpenSearch, or what `--search-url` names."""
    return str(request.config.getoption("--search-url") or request.getfixturevalue("opensearch").url)


def _running(server: Server) -> Iterator[Server]:
    """Start a server and stop it. Its tests are skipped if its archive cannot be had."""
    try:
        server.start()
    except NotFetched as error:
        pytest.skip(str(error))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def registry_proxy(registry: Registry) -> Iterator[RegistryProxy]:
    """The same behind a proxy that adds GUIDs."""
    with RegistryProxy(registry.url) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def _empty_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("empty")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, _empty_folder: Path
) -> Iterator[None]:
    """No setting of the developer's own environment, and no TOML file of the current folder, reaches a test.

    A test that asks for a folder runs in it; the others, thousands, run in one that is emptied after each.
    """
    for name in [name for name in os.environ if name.startswith("ENRICHER_")]:
        monkeypatch.delenv(name)
    has_folder = "tmp_path" in request.fixturenames
    monkeypatch.chdir(request.getfixturevalue("tmp_path") if has_folder else _empty_folder)
    yield
    for left in _empty_folder.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()


@pytest.fixture(autouse=True)
def _log_form_ends_with_the_test() -> Iterator[None]:
    """A command called in this process sets the form of all handlers, those that watch the log for tests included."""
    before = [(each, each.formatter, list(each.filters)) for each in logging.getLogger().handlers]
    yield
    for handler, formatter, filters in before:
        handler.setFormatter(formatter)
        handler.filters[:] = filters


@pytest.fixture
def topics(broker: Cluster) -> Topics:
    """Fresh topics with four partitions each."""
    return make_topics(broker.bootstrap_servers)
