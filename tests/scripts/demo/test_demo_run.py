"""What `scripts/demo` and `scripts/kafka` run, with the packages that they install, and no others."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from enricher.distribution import DISTRIBUTION
from tools import ROOT
from tools.demo.__main__ import how_to_find_it

HIDING = """
import sys
from importlib.machinery import PathFinder

class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {hidden!r} else super().find_spec(name, path, target)

sys.meta_path = [Hiding if finder is PathFinder else finder for finder in sys.meta_path]
"""
WITHOUT_A_BROKER = """
import tools.demo.__main__, tools.kafka.__main__
import enricher.operate.publish, enricher.worker.commands.run, enricher.operate.topics
import jgo.config, jgo.maven, requests  # which fetch the jars
from enricher.cli import main
main()
"""
"""Everything that is imported on the way, then the command of the arguments."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment in which Python finds none of the modules that only development.txt brings."""
    lock = (ROOT / "scripts" / "locked" / "demo.txt").read_text(encoding="utf-8")
    locked = {DISTRIBUTION, *re.findall(r"^([a-z0-9][a-z0-9._-]*)==", lock, re.MULTILINE)}
    hidden = {
        module
        for module, packages in packages_distributions().items()
        if locked.isdisjoint(re.sub(r"[-_.]+", "-", name).lower() for name in packages)
    }
    (tmp_path / "sitecustomize.py").write_text(HIDING.format(hidden=hidden), encoding="utf-8")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (tmp_path, ROOT / "scripts", ROOT)))}


def run(code: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run Python with one article as standard input."""
    return subprocess.run(
        [sys.executable, "-c", code, "enrich", "-"],
        env=environment,
        input='{"id": "1", "body": "Angela Merkel met Emmanuel Macron in Paris."}',
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_demonstration_needs_nothing_that_it_does_not_install(environment: dict[str, str]) -> None:
    """Its modules, those of the broker and of the worker, and the model find all that they import in demo.txt."""
    shown = run(WITHOUT_A_BROKER, environment)
    assert 0 == shown.returncode, shown.stderr
    assert ["Angela Merkel", "Emmanuel Macron", "Paris"] == [
        entity["text"] for entity in json.loads(shown.stdout)["entities"]
    ]


def test_what_the_demonstration_does_not_install_is_missed(environment: dict[str, str]) -> None:
    """The control of the test above: a module that only the tests have is not found."""
    assert "No module named 'matplotlib'" in run("import matplotlib", environment).stderr


def test_its_last_line_is_how_a_shell_finds_the_program() -> None:
    """The command runs as it is, from any folder."""
    done = subprocess.run(["bash", "-c", how_to_find_it()], cwd="/", capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    assert "enricher" in done.stdout
