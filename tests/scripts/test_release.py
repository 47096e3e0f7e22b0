"""`scripts/release`, in a small repository with this project's files and without its model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEW = "7.8.9"
MOST_WHEEL_BYTES = 100_000_000
"""What the package index takes without asking."""
NEEDED = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "enricher", "schemas", "deploy")


class Repository:
    """A repository with what a release reads and writes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def fill(self) -> None:
        """Make it, with one commit."""
        listed = subprocess.run(
            ["git", "ls-files", *NEEDED], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.splitlines()
        for name in listed:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"weights" if name.endswith(".safetensors") else (ROOT / name).read_bytes())
        self.git("init", "--quiet", "--initial-branch=main")
        self.commit()

    def clone(self, root: Path) -> Repository:
        """Another one with the same commit, which reads this one's objects."""
        self.git("clone", "--quiet", "--shared", ".", str(root))
        return Repository(root)

    def git(self, *arguments: str) -> str:
        """The output of git as a developer without settings."""
        me = ("-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "commit.gpgsign=false")
        command = ["git", *me, *arguments]
        return subprocess.run(command, cwd=self.root, check=True, capture_output=True, text=True).stdout

    def commit(self) -> None:
        """Commit everything."""
        self.git("add", "--all", "--force")
        self.git("commit", "--quiet", "--allow-empty", "--message", "work")

    def release(self, version: str) -> subprocess.CompletedProcess[str]:
        """Run the script's Python there, which needs no set-up."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "scripts"), str(ROOT)))}
        command = [sys.executable, "-m", "tools.release", version]
        return subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, check=False)

    def refusal(self, version: str = NEW) -> str:
        """Why a version is refused; nothing was written."""
        before = self.git("status", "--porcelain")
        ended = self.release(version)
        assert ended.returncode == 1
        assert before == self.git("status", "--porcelain")
        return ended.stderr


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """The repository that tests clone: to commit it takes three times as long."""
    made = Repository(tmp_path_factory.mktemp("release"))
    made.fill()
    return made


@pytest.fixture
def repository(committed: Repository, tmp_path: Path) -> Repository:
    """A repository of the test's own."""
    return committed.clone(tmp_path / "repository")


def test_a_release_is_written_everywhere(repository: Repository) -> None:
    """The version in every file that names the old one, the heading, and the schemas."""
    (old,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    ended = repository.release(NEW)
    assert ended.returncode == 0, ended.stderr
    assert "How to release" in ended.stdout
    left = [
        path
        for path in [repository.root / "pyproject.toml", *repository.root.glob("deploy/**/*")]
        if path.suffix in {".toml", ".md", ".yaml", ".Dockerfile"}
        and re.search(rf"(?<![\w.]){re.escape(old)}(?!\.?\d)", path.read_text("utf-8"))
    ]
    assert left == []
    assert re.search(rf"^## Unreleased\n\n## {NEW} - \d{{4}}-\d\d-\d\d\n\n###", changelog(repository), re.MULTILINE)
    kept = {path.name for path in (repository.root / "schemas" / "released" / NEW).iterdir()}
    assert kept == {path.name for path in (ROOT / "schemas").iterdir() if path.is_file() and path.suffix != ".md"}


def changelog(repository: Repository) -> str:
    """Its text."""
    return (repository.root / "CHANGELOG.md").read_text("utf-8")


def test_a_tree_that_is_not_ready_is_refused_before_anything_is_written(repository: Repository) -> None:
    """A name that is no version, a version that is out, changes that nobody committed, and nothing to tell users."""
    assert "three numbers" in repository.refusal("v7.8")
    repository.git("tag", f"v{NEW}")
    assert f"{NEW} is no new version" in repository.refusal()
    (repository.root / "new.txt").touch()
    assert "?? new.txt" in repository.refusal("8.0.0")
    (repository.root / "CHANGELOG.md").write_text("## Unreleased\n\n## 7.8.10 - 2026-01-01\n\n- All.\n", "utf-8")
    repository.commit()
    assert "what do users get?" in repository.refusal("8.0.0")


def wheel(repository: Repository, out: Path, umask: int, zone: str) -> Path:
    """The wheel, built by a process with that umask and time zone."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "scripts"), "TZ": zone}
    program = (
        "import sys; from pathlib import Path; from tools.release import build_wheel; build_wheel(Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", program, str(out)]
    subprocess.run(command, cwd=repository.root, env=environment, umask=umask, check=True)
    (made,) = out.iterdir()
    return made


@pytest.mark.slow
@pytest.mark.skipif(find_spec("uv") is None, reason="this environment was set up without uv")
def test_the_same_commit_gives_the_same_bytes(repository: Repository, tmp_path: Path) -> None:
    """Whatever times, umask, time zone and other files there are; without the model for tests, below what an index takes."""
    first = wheel(repository, tmp_path / "first", 0o022, "UTC")
    elsewhere = repository.clone(tmp_path / "elsewhere")
    (elsewhere.root / "enricher" / "mine.py").touch()
    second = wheel(elsewhere, tmp_path / "second", 0o077, "Asia/Kolkata")
    assert (first.name, first.read_bytes()) == (second.name, second.read_bytes())
    listed = repository.git("ls-files", "enricher").splitlines()
    inside = {name for name in zipfile.ZipFile(first).namelist() if ".dist-info/" not in name}
    assert (
        {name for name in listed if name.endswith((".py", ".json", ".safetensors", ".proto"))} <= inside <= set(listed)
    )
    # The weights of this repository are a few bytes, and compression does not make the real ones larger.
    weights_bytes = sum((ROOT / name).stat().st_size for name in inside if name.endswith(".safetensors"))
    assert first.stat().st_size + weights_bytes < MOST_WHEEL_BYTES
