"""Looking up the registry's host must not delay the end of a process."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.patience import PATIENCE_S

from enricher.worker.registry.config import registry_config
from enricher.worker.registry.registry_client import RegistryClient
from enricher.worker.registry.registry_errors import RegistryUnavailable

_PROGRAM = """
import socket, time
socket.getaddrinfo = lambda *_, **__: time.sleep(600)
from enricher.worker.registry.registry_client import RegistryClient
from enricher.worker.registry.config import registry_config
from enricher.worker.registry.registry_errors import RegistryUnavailable
client = RegistryClient(registry_config("http://registry.example", {}, timeout_s=0.2, max_schema_bytes=1_000))
try:
    client.subjects()
except RegistryUnavailable as error:
    print(error)
"""


@pytest.mark.slow
def test_a_resolver_that_hangs_does_not_keep_the_process() -> None:
    """The request is given up in its time, and the look-up with it."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert "has not answered within 0.2 s" in done.stdout


def test_a_host_that_does_not_exist_is_told() -> None:
    """`invalid` is a domain that nobody may have (RFC 2606)."""
    config = registry_config("http://registry.invalid", {}, timeout_s=10, max_schema_bytes=1_000)
    with pytest.raises(RegistryUnavailable, match="cannot be reached"):
        RegistryClient(config).subjects()
