"""The commands of the pages that ask for a schema registry, against a real one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages.executed import REGISTRY, pages_with, run_commands
from support.topics import Topics

from tools.registry import Registry

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("page", pages_with("sh", server=REGISTRY))
def test_commands_of_a_page_about_registry_run_one_after_the_other(
    page: str, topics: Topics, registry: Registry, tmp_path: Path
) -> None:
    """In one shell, in the page's order; the first failure ends it. A page may also ask the first server alone."""
    first, _, _ = REGISTRY.partition(",")
    run_commands(page, topics, tmp_path, {REGISTRY: registry.url, first: registry.url})
