"""The command line of `scripts/release`, and what a release changes in the tree. What is released: `artifacts.py`."""

from __future__ import annotations

import re
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

from tools.release.artifacts import NotReleasable, build, run

CHANGELOG, PROJECT, SCHEMAS = Path("CHANGELOG.md"), Path("pyproject.toml"), Path("schemas")
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_UNRELEASED = "## Unreleased\n"
_NEXT_STEPS = """\
{version} is written. Next:
  1. git diff; git status    read it: CHANGELOG.md, the version, schemas/released/{version}
  2. .ci/run                 all checks and tests
  3. git add --all && git commit -m 'Release {version}', and merge it into main
  4. git tag -s v{version} -m 'enricher {version}' && git push origin v{version}
The tag starts .github/workflows/release.yml, which waits for an approval before it uploads.
"""


def prepare(version: str) -> None:
    """Write a release into the tree, and print what to do next. Raises NotReleasable before it writes anything."""
    changelog = CHANGELOG.read_text("utf-8")
    _check_tree(version, changelog)
    (old,) = re.findall(r'^version = "(.+)"$', PROJECT.read_text("utf-8"), re.MULTILINE)
    # After these words the project's version stands, and not another package's.
    before = r'(^version = "|^(?:appV|v)ersion: |\benricher:|image\.version="|^ *tag: |`)'
    named = re.compile(rf"{before}{re.escape(old)}(?![\d.])", re.MULTILINE)
    naming = ("deploy/*.md", "deploy/*.y*ml", "deploy/*.Dockerfile", str(PROJECT))
    for name in run("git", "ls-files", *naming).decode().split():
        text = Path(name).read_text("utf-8")
        Path(name).write_text(named.sub(rf"\g<1>{version}", text), "utf-8")
    heading = f"{_UNRELEASED}\n## {version} - {datetime.now(UTC):%Y-%m-%d}\n"
    CHANGELOG.write_text(changelog.replace(_UNRELEASED, heading, 1), "utf-8")
    kept = SCHEMAS / "released" / version  # the tests compare later schemas with these
    kept.mkdir()
    for schema in SCHEMAS.glob("*.v[0-9]*"):
        shutil.copy(schema, kept)
    sys.stdout.write(_NEXT_STEPS.format(version=version))


def _check_tree(version: str, changelog: str) -> None:
    if not _VERSION.fullmatch(version):
        raise NotReleasable(f"{version} is no version: pip, Helm and images all take three numbers, such as 0.2.0")
    if changed := run("git", "status", "--porcelain"):
        raise NotReleasable(f"commit or remove these changes first:\n{changed.decode()}")
    tags = run("git", "tag", "--list", "v*").decode().split()
    newest = max((tag[1:] for tag in tags if _VERSION.fullmatch(tag[1:])), key=_numbers, default="0.0.0")
    if _numbers(version) <= _numbers(newest):
        raise NotReleasable(f"{newest} is released already: choose a later version")
    if not changelog.partition(_UNRELEASED)[2].partition("\n## ")[0].strip():
        raise NotReleasable(f"{CHANGELOG} has nothing under '{_UNRELEASED.strip()}': what do users get?")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def main() -> None:
    try:
        match sys.argv[1:]:
            case ["build", *folder] if len(folder) <= 1:
                build(Path(*folder or ["dist"]))
            case [version] if not version.startswith("-"):
                prepare(version)
            case _:
                sys.exit("scripts/release: say VERSION, or 'build' and perhaps a folder; see --help")
    except NotReleasable as error:
        sys.exit(f"scripts/release: {error}")


main()
