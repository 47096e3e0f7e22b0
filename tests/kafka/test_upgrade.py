"""An upgrade: workers of the version before and of this one side by side in one group, under load, and the way back.

The version before is the newest tag, or what `--upgrade-from` names: a wheel, or a commit.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from itertools import cycle, product
from pathlib import Path

import orjson
import pytest
from kafka.harness import Sent, assert_all_is_there_once, is_all_committed, short_articles
from pydantic import ValidationError
from support.offenders import assert_none
from support.patience import PATIENCE_S, wait_until
from support.reading import read_all
from support.topics import Topics
from test_docs import ROOT

from enricher.worker.settings import Settings

LIMIT_S = 3_600
ARTICLES_PER_S = 8
Command = Sequence[str]
HERE = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import runpy; runpy.run_module('enricher', run_name='__main__')"
NEW: Command = (sys.executable, "-c", HERE)
"""The version of this checkout, in whichever folder."""

pytestmark = [
    pytest.mark.broker,
    pytest.mark.long,
    pytest.mark.timeout(LIMIT_S),
    pytest.mark.skipif(find_spec("uv") is None, reason="this environment was set up without uv"),
]


def run(*command: str, cwd: Path = ROOT) -> str:
    """What a program prints. Its errors are shown as they are."""
    return subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout


def uv(*arguments: str, cwd: Path = ROOT) -> None:
    """Run the installer of packages."""
    run(sys.executable, "-m", "uv", *arguments, "--quiet", cwd=cwd)


@pytest.fixture(scope="module")
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """The command of the version before, installed in an environment of its own."""
    wanted = request.config.getoption("--upgrade-from") or run("git", "tag", "--list", "v*", "--sort=-v:refname")
    if not wanted:
        pytest.skip("no version has a tag yet; --upgrade-from names a wheel or a commit")
    folder = tmp_path_factory.mktemp("old")
    python = str(folder / "venv" / "bin" / "python")
    uv("venv", "--python", sys.executable, str(folder / "venv"))
    if wanted.endswith(".whl"):
        uv("pip", "install", "--python", python, str(Path(wanted).absolute()))
        return [python, "-m", "enricher"]
    with subprocess.Popen(("git", "archive", wanted.split()[0]), cwd=ROOT, stdout=subprocess.PIPE) as archive:
        subprocess.run(("tar", "--extract", f"--directory={folder}"), stdin=archive.stdout, check=True)
    lock = folder / "scripts" / "locked" / "runtime-cpu.txt"
    uv("pip", "install", "--python", python, "--require-hashes", "--requirement", str(lock))
    uv("pip", "install", "--python", python, "--no-deps", "--no-build-isolation", str(folder))
    return [python, "-m", "enricher"]


class Group:
    """Workers by name, each of one of the versions."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._starts = 0

    def start(self, name: str, command: Command) -> None:
        """Start a worker, and wait until it is a member with partitions."""
        self._starts += 1
        log = self._folder / f"{self._starts}-{name}.log"
        environment = {**self._environment, "ENRICHER_KAFKA__INSTANCE": name}
        with log.open("wb") as errors:
            self._running[name] = subprocess.Popen((*command, "run"), cwd=self._folder, env=environment, stderr=errors)

        def assigned() -> bool:
            assert self._running[name].poll() is None, log.read_text("utf-8")
            return "partitions assigned: " in log.read_text("utf-8")

        wait_until(assigned, PATIENCE_S, f"{name} has partitions")

    def end(self, name: str, *, kill: bool) -> None:
        """End a worker, without a word or as it is asked to."""
        process = self._running.pop(name)
        (process.kill if kill else process.terminate)()
        assert process.wait(PATIENCE_S) == (-9 if kill else 0)

    def close(self) -> None:
        """End all that run, as they are asked to."""
        for name in [*self._running]:
            self.end(name, kill=False)


def test_both_versions_work_side_by_side_in_one_group(
    old: Command, topics: Topics, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """One after the other is replaced, there and back, by SIGTERM and by SIGKILL, as long as articles come; both verify."""
    own = {"ENRICHER_MODEL__CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": ""}
    environment = {**os.environ, **topics.environment, **own, "ENRICHER_HEALTH__ENABLED": "false"}
    count = int(60 * ARTICLES_PER_S * request.config.getoption("--upgrade-minutes"))
    (tmp_path / "articles.jsonl").write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in short_articles(count)))
    group = Group(tmp_path, environment)
    with closing(group):
        group.start("worker-0", old)
        group.start("worker-1", old)
        load = (*NEW, "publish", "--rate", str(ARTICLES_PER_S), str(tmp_path / "articles.jsonl"))
        with subprocess.Popen(load, env=environment) as publisher:
            replacements = cycle(product((NEW, old), ("worker-0", "worker-1")))
            for kill, (command, name) in zip(cycle((False, False, True)), replacements, strict=False):
                if publisher.poll() is not None:
                    break
                group.end(name, kill=kill)
                group.start(name, command)
                seen = len(read_all(topics.bootstrap_servers, topics.output))
                wait_until(partial(goes_on, topics, seen, publisher), PATIENCE_S, "records come, or no more articles")
        assert publisher.returncode == 0
        wait_until(lambda: is_all_committed(topics), PATIENCE_S, "everything is committed")
    inputs = read_all(topics.bootstrap_servers, topics.input)
    assert len(inputs) == count
    places = {(each.partition() or 0, each.offset() or 0): Sent(each.key(), each.value()) for each in inputs}
    assert_all_is_there_once(topics, places)
    for command in (old, NEW):
        subprocess.run((*command, "verify"), env=environment, cwd=tmp_path, check=True)


def goes_on(topics: Topics, seen: int, publisher: subprocess.Popen[bytes]) -> bool:
    """Whether there are more records than that, or no more articles to come."""
    return len(read_all(topics.bootstrap_servers, topics.output)) > seen or publisher.poll() is not None


def test_settings_of_the_old_version_are_taken_or_refused_by_name(old: Command, tmp_path: Path) -> None:
    """With its defaults, each is taken; one that is gone would be named."""
    program = "from enricher.worker.settings import Settings; print(Settings().model_dump_json())"
    environment = {"PATH": os.environ["PATH"]}
    written = subprocess.check_output((*old[:1], "-c", program), cwd=tmp_path, env=environment)
    written_settings = {
        (group, name): value for group, fields in orjson.loads(written).items() for name, value in fields.items()
    }
    assert_none(found for place, value in written_settings.items() if (found := objection(*place, value)))


def objection(group: str, name: str, value: object) -> str:
    """What is wrong with the refusal of this setting; empty if it is taken, or refused because nothing has that name."""
    try:
        Settings.model_validate({group: {name: value}})
    except ValidationError as error:
        gone = [(each["type"], each["loc"]) for each in error.errors()] == [("extra_forbidden", (group, name))]
        return "" if gone else str(error)
    return ""
