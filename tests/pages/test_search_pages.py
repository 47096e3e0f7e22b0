"""The commands of the pages that ask for a search index, against a real one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages.executed import SEARCH, pages_with, run_commands
from support.topics import Topics

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("page", pages_with("sh", server=SEARCH))
def test_commands_of_a_page_about_search_run_one_after_the_other(
    page: str, topics: Topics, search_url: str, tmp_path: Path
) -> None:
    """In one shell, in the page's order; the first failure ends it."""
    run_commands(page, topics, tmp_path, {SEARCH: search_url})
