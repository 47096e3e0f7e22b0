"""The question how large records of the output topics may be, when nobody answers it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource
from kafka.clients import config_for
from support.topics import Topics

from enricher.worker.kafka.metadata import message_limits


class SilentAdmin:
    """A client that never answers, not even at its own timeout."""

    def describe_configs(self, resources: list[ConfigResource], **_named: object) -> dict[ConfigResource, Future[Any]]:
        """Promise answers that do not come."""
        return {resource: Future() for resource in resources}


def test_without_an_answer_the_settings_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start does not wait for ever for a limit, and a question in vain raises nothing."""
    monkeypatch.setattr("enricher.worker.kafka.metadata._TIMEOUT_S", 0.01)
    config = config_for(Topics("127.0.0.1:1", "in", "out", "dead", "group", {}))
    assert {} == message_limits(cast("AdminClient", SilentAdmin()), config)
