"""scripts/environment.sh with its real tools, in a small repository and with an index on loopback; and what it refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from support.wheels import Index

SCRIPTS = Path(__file__).parents[3] / "scripts"
PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "enricher"
version = "0.1.0"
[tool.setuptools]
packages = ["enricher"]
"""
TOOL = """\
import json
from importlib.metadata import distributions
import engine, enricher
packages = {each.name: each.version for each in distributions() if each.name not in ("pip", "setuptools", "uv")}
print(json.dumps([packages, engine.__doc__]))
"""
"""What scripts/demo and scripts/bench run here: prints what is installed, and which of the engines."""
ENRICHER = {"enricher": "0.1.0"}


def has_uv() -> bool:
    """Whether this environment was set up with uv, which the index takes from it."""
    try:
        distribution("uv")
    except PackageNotFoundError:
        return False
    return True


pytestmark = [
    pytest.mark.skipif(shutil.which("bash") is None, reason="these are scripts for bash"),
    pytest.mark.skipif(not has_uv(), reason="this environment was set up without uv"),
]


class Repository:
    """A small repository: the demo needs an engine, and all the rest needs another one in its place, and a tool."""

    def __init__(self, root: Path, index: Index) -> None:
        self.root = root
        self.index = index
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "PYTHON"))},
            "HOME": str(root.parent / "home"),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": index.url,
            "PYTHON": sys.executable,
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
            "UV_HTTP_TIMEOUT": "600",  # for what the index holds back
            "XDG_CACHE_HOME": str(root.parent / "cache"),
        }
        (root / "enricher").mkdir(parents=True)
        (root / "enricher" / "__init__.py").touch()
        (root / "pyproject.toml").write_text(PROJECT)
        self.scripts = root / "scripts"
        (self.scripts / "tools").mkdir(parents=True)
        (self.scripts / "locked").mkdir()
        for name in ("environment.sh", "demo", "bench"):
            shutil.copy2(SCRIPTS / name, self.scripts / name)
        for name in ("demo", "bench"):
            (self.scripts / "tools" / f"{name}.py").write_text(TOOL)
        self.write_lock("uv", index.installed("uv"))
        self.setuptools = index.installed("setuptools")
        self.small = index.requirement("small-engine", "1.0", {"engine.py": b'"""small"""'})
        self.large = index.requirement("large-engine", "1.0", {"engine.py": b'"""large"""'})

    def write_lock(self, name: str, *lines: str) -> None:
        """Write one of the locks."""
        (self.scripts / "locked" / f"{name}.txt").write_text("".join(lines))

    def choose(self, version: str, *, held: bool = False) -> None:
        """Lock this version of the package that both have, and of the tool; the index holds the former back on demand."""
        both = self.index.requirement("both", version, {"both.py": b""})
        if held:
            self.index.asked.clear()
            self.index.released.clear()
            self.index.held.add(f"both-{version}-py3-none-any.whl")
        tool = self.index.requirement("tool", version, {"tool.py": b""})
        self.write_lock("demo", self.setuptools, both, self.small)
        self.write_lock("development", self.setuptools, both, self.large, tool)

    def start(self, script: str, **environment: str) -> subprocess.Popen[str]:
        """Start a script in a process group of its own."""
        return subprocess.Popen(
            [self.scripts / script],
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, script: str) -> tuple[list[object], str]:
        """Run a script to its end; returns what its tool found, and what was said."""
        return ended(self.start(script))


def ended(process: subprocess.Popen[str], *, by_pip: bool = False) -> tuple[list[object], str]:
    """What the tool of a script found, and what was said; uv installed it, unless pip had to."""
    found, said = process.communicate()
    assert 0 == process.returncode, said
    assert by_pip == ("uv cannot install" in said), said
    return json.loads(found), said


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    """One repository for all tests, each of which locks versions of its own."""
    folder = tmp_path_factory.mktemp("set-up")
    index = Index(folder / "index")
    yield Repository(folder / "root", index)
    index.close()


def for_demo(version: str) -> list[object]:
    """What scripts/demo finds where only it has run."""
    return [{**ENRICHER, "both": version, "small-engine": "1.0"}, "small"]


def everything(version: str) -> list[object]:
    """What all other scripts find, and the demo after them."""
    return [{**ENRICHER, "both": version, "large-engine": "1.0", "tool": version}, "large"]


@pytest.mark.long
def test_everything_completes_what_the_demo_installed(repository: Repository) -> None:
    """The demo has its own packages; the next script adds the rest to the same .venv, and the demo runs with that."""
    repository.choose("1.0")
    shutil.rmtree(repository.root / ".venv", ignore_errors=True)
    found, said = repository.run("demo")
    assert for_demo("1.0") == found
    assert "locked/demo.txt" in said
    kept = repository.root / ".venv" / "kept"
    kept.touch()
    assert everything("1.0") == repository.run("bench")[0]
    assert (everything("1.0"), "") == repository.run("demo")
    assert kept.exists()


def test_a_changed_lock_changes_what_is_installed(repository: Repository) -> None:
    """Also when the demo finds it first: a .venv with everything is not reduced to the demo's packages."""
    repository.choose("2.0")
    repository.run("bench")
    repository.choose("2.1")
    assert everything("2.1") == repository.run("demo")[0]


def test_a_second_set_up_waits_for_the_first(repository: Repository) -> None:
    """It says so, and then finds all that it needs."""
    repository.choose("3.0", held=True)
    first = repository.start("bench")
    repository.index.asked.wait()
    second = repository.start("bench")
    assert second.stderr is not None
    assert "Waiting for another set-up" in second.stderr.readline()
    repository.index.released.set()
    assert everything("3.0") == ended(first)[0]
    assert (everything("3.0"), "") == ended(second)


@pytest.mark.long
def test_an_interrupted_set_up_is_repeated_from_the_beginning(repository: Repository) -> None:
    """Nothing of a .venv is trusted whose set-up was killed."""
    repository.choose("4.0", held=True)
    killed = repository.start("bench")
    repository.index.asked.wait()
    (repository.root / ".venv" / "left").touch()
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    repository.index.released.set()
    assert everything("4.0") == repository.run("bench")[0]
    assert not (repository.root / ".venv" / "left").exists()


@pytest.mark.long
def test_pip_installs_where_uv_cannot(repository: Repository) -> None:
    """With the same lock, from the beginning, after saying why."""
    repository.choose("6.0")
    assert everything("6.0") == ended(repository.start("bench", UV_OFFLINE="1"), by_pip=True)[0]


def test_a_wheel_with_another_hash_is_refused(repository: Repository) -> None:
    """Then nothing is installed, and nothing removed."""
    repository.choose("7.0")
    before = repository.run("bench")[0]
    repository.choose("7.1")
    lock = repository.scripts / "locked" / "demo.txt"
    lock.write_text(re.sub(r"(both==7.1 --hash=sha256:)\w+", r"\g<1>" + 64 * "0", lock.read_text()))
    refused = sourced(repository.root, "install_with_uv demo", **repository.environment)
    assert 0 != refused.returncode
    assert "mismatch" in refused.stderr
    repository.choose("7.0")
    assert (before, "") == repository.run("bench")


def sourced(repository: Path, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a function of environment.sh."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "PYTHON", "SSL_"))}
    return subprocess.run(
        ["bash", "-c", f". '{repository}/scripts/environment.sh'; {command}"],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_uv_is_told_what_pip_knows_of_the_index(tmp_path: Path) -> None:
    """From variables and from files: uv reads neither."""
    settings = tmp_path / "pip.conf"
    settings.write_text("[global]\nindex-url = https://mirror/simple\nproxy = http://proxy:3128\n")
    told = sourced(
        SCRIPTS.parent,
        f"python='{sys.executable}'; tell_uv_what_pip_knows; env",
        PIP_CONFIG_FILE=str(settings),
        PIP_CERT="/own/ca.pem",
        PIP_EXTRA_INDEX_URL="https://a/simple https://b/simple",
        PIP_TRUSTED_HOST="mirror",
    )
    assert {
        "UV_DEFAULT_INDEX=https://mirror/simple",
        "UV_INDEX=https://a/simple https://b/simple",
        "UV_INSECURE_HOST=mirror",
        "SSL_CERT_FILE=/own/ca.pem",
        "HTTPS_PROXY=http://proxy:3128",
    } <= set(told.stdout.splitlines())


COMMANDS = sorted(each.name for each in SCRIPTS.iterdir() if each.is_file() and not each.suffix)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Copy the scripts into a repository where nothing is set up."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for name in ("environment.sh", *COMMANDS):
        shutil.copy2(SCRIPTS / name, scripts / name)
    return scripts


def run(script: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script from another folder with the given environment variables."""
    return subprocess.run(
        [str(script), *arguments],
        cwd="/",
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_help_needs_no_set_up(bare: Path, name: str) -> None:
    """`--help` explains the script at once and installs nothing."""
    asked = run(bare / name, "--help")
    assert asked.returncode == 0
    assert f"scripts/{name}" in asked.stdout
    assert not (bare.parent / ".venv").exists()


def test_unfit_python_is_refused_with_the_version_needed(bare: Path, tmp_path: Path) -> None:
    """A Python that is too old is named, with what is needed instead, before anything is written."""
    old = tmp_path / "old-python"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.8.1"\nexit 1\n')
    old.chmod(0o755)
    refused = run(bare / "test", PYTHON=str(old))
    assert refused.returncode == 1
    assert "3.11 or newer" in refused.stderr
    assert "Python 3.8.1" in refused.stderr
    assert not (bare.parent / ".venv").exists()


def test_python_without_venv_is_told_what_to_install(bare: Path, tmp_path: Path) -> None:
    """Debian splits venv from Python: the message names the modules before anything is written."""
    crippled = tmp_path / "crippled-python"
    crippled.write_text('#!/bin/sh\ncase "$2" in *ensurepip*) exit 1 ;; esac\nexit 0\n')
    crippled.chmod(0o755)
    refused = run(bare / "check", PYTHON=str(crippled))
    assert refused.returncode == 1
    assert "venv and ensurepip" in refused.stderr
    assert not (bare.parent / ".venv").exists()
