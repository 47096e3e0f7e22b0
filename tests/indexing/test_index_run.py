"""What `enricher index run` and `verify` refuse before they connect."""

from __future__ import annotations

import pytest
from commands.cli_runner import run

from enricher.errors import SettingsError


@pytest.mark.parametrize("command", ["run", "verify"])
def test_several_input_topics_are_refused_with_the_reason_and_what_to_do(command: str) -> None:
    """Versions of a key in two topics do not compare, so the index could end up wrong without anybody noticing."""
    refused = run("index", command, env={"ENRICHER_KAFKA__INPUT_TOPICS": '["articles.now", "articles"]'})
    assert isinstance(refused.exception, SettingsError)
    assert "comparable only within one" in str(refused.exception)
    assert "its own workers, output topic and index (index.name)" in str(refused.exception)
