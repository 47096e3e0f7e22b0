"""The site of the pages, built from a fresh clone. The plain run leaves it out, because it needs further packages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(find_spec("mkdocs") is None, reason="MkDocs is not installed; scripts/site adds it"),
]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What is committed, and nothing else."""
    subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, tmp_path / "clone"], check=True)
    return tmp_path / "clone"


def build(clone: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """As `scripts/site` does it."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=clone / "scripts" / "tools" / "site",
        env={**os.environ, "NO_MKDOCS_2_WARNING": "true"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def test_the_site_has_every_page_and_finds_what_they_say(clone: Path, tmp_path: Path) -> None:
    """Strictly: no link or anchor leads nowhere, and no page is missing in the navigation."""
    site = tmp_path / "site"
    done = build(clone, site)
    assert 0 == done.returncode, done.stderr
    assert (site / "deploy" / "monitoring" / "runbook.html").is_file()
    home = (site / "index.html").read_text("utf-8")
    needed = re.findall(r'(?:href|src)="(assets/[^"#?]+)"', home)
    assert any(each.endswith(".css") for each in needed)
    assert [each for each in needed if not (site / each).is_file()] == [], "what the theme needs is there"
    assert "ENRICHER_KAFKA__GROUP_ID" in (site / "deploy" / "settings.html").read_text("utf-8")
    found = json.loads((site / "search" / "search_index.json").read_bytes())["docs"]
    assert "deploy/monitoring/runbook.html#enricherindexstuck" in {each["location"] for each in found}


@pytest.mark.parametrize(
    ("text", "named"),
    [("[x](deploy/gone.md)", "deploy/gone.md"), ("[x](deploy/running.md#no-such-heading)", "no-such-heading")],
)
def test_a_link_that_leads_nowhere_is_refused(clone: Path, tmp_path: Path, text: str, named: str) -> None:
    """The negative control: a page and a heading that are not there."""
    page = clone / "README.md"
    page.write_text(f"{page.read_text('utf-8')}\n{text}\n", "utf-8")
    done = build(clone, tmp_path / "site")
    assert 0 != done.returncode
    assert named in done.stderr
