"""A coordinator that is found only when nobody waits for it any longer does not end the process that asked."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.patience import PATIENCE_S
from support.topics import Topics

from tools.chaos.proxy import Proxy
from tools.chaos.rules import Api, Delay, Match

pytestmark = pytest.mark.broker

START = """
import time
from enricher.worker.wiring.kafka_clients import kafka_config
from enricher.worker.kafka.precheck import check_start
from enricher.worker.wiring.kafka_clients import kafka_config
from enricher.worker.settings import load_settings
check_start(kafka_config(load_settings()))
print("checked", flush=True)
time.sleep(4)
"""


def test_the_check_before_a_start_outlives_a_late_coordinator(proxy: Proxy, topics: Topics) -> None:
    """A time limit within the client passes first, and aborts the process when the answer comes (librdkafka 4605)."""
    proxy.apply(delay := Delay(Match({Api.FIND_COORDINATOR}), 1.2))
    done = subprocess.run(
        [sys.executable, "-c", START],
        env=topics.environment | {"ENRICHER_KAFKA__BOOTSTRAP_SERVERS": proxy.addresses},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert delay.caught.is_set()
    assert (0, "checked\n") == (done.returncode, done.stdout), done.stderr
