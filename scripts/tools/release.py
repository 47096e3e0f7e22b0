"""`scripts/release`: writes a version into the tree, or builds what is released from HEAD alone."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path

CHANGELOG, PROJECT, SCHEMAS = Path("CHANGELOG.md"), Path("pyproject.toml"), Path("schemas")
LOCK = "scripts/locked/runtime.txt"
"""The SBOM lists these packages, which the wheel needs."""
SOURCES = ("LICENSE", "README.md", "enricher", "pyproject.toml")
_UNRELEASED = "## Unreleased\n"


def prepare(version: str) -> None:
    """Write a release into the tree. Raises SystemExit before it writes anything if the tree is not ready."""
    changelog = CHANGELOG.read_text("utf-8")
    if not re.fullmatch(r"\d+\.\d+\.\d+", version) or _run("git", "tag", "--list", f"v{version}"):
        sys.exit(f"scripts/release: {version} is no new version of three numbers, such as 0.2.0")
    if changed := _run("git", "status", "--porcelain"):
        sys.exit(f"scripts/release: commit or remove these changes first:\n{changed.decode()}")
    if not changelog.partition(_UNRELEASED)[2].partition("\n## ")[0].strip():
        sys.exit(f"scripts/release: {CHANGELOG} has nothing under '{_UNRELEASED.strip()}': what do users get?")
    (old,) = re.findall(r'^version = "(.+)"$', PROJECT.read_text("utf-8"), re.MULTILINE)
    # After these words the project's version stands, and not another package's.
    before = r'(^version = "|^(?:appV|v)ersion: |\benricher:|image\.version="|^ *tag: |`)'
    named = re.compile(rf"{before}{re.escape(old)}(?![\d.])", re.MULTILINE)
    naming = ("deploy/*.md", "deploy/*.y*ml", "deploy/*.Dockerfile", str(PROJECT))
    for name in _run("git", "ls-files", *naming).decode().split():
        text = Path(name).read_text("utf-8")
        Path(name).write_text(named.sub(rf"\g<1>{version}", text), "utf-8")
    heading = f"{_UNRELEASED}\n## {version} - {datetime.now(UTC):%Y-%m-%d}\n"
    CHANGELOG.write_text(changelog.replace(_UNRELEASED, heading, 1), "utf-8")
    kept = SCHEMAS / "released" / version  # the tests compare later schemas with these
    kept.mkdir()
    for schema in SCHEMAS.glob("*.v[0-9]*"):
        shutil.copy(schema, kept)
    print(f"{version} is written. What comes next: CONTRIBUTING.md, 'How to release'")


def build(out: Path) -> None:
    """Write wheel, SBOM and checksums of HEAD into `out`. The same commit gives the same bytes."""
    if out.exists() and any(out.iterdir()):
        sys.exit(f"scripts/release: {out} is not empty: remove it, or name another folder")
    if changed := _run("git", "status", "--porcelain", "--untracked-files=no"):
        sys.exit(f"scripts/release: the SBOM is made from the tree; commit or remove first:\n{changed.decode()}")
    build_wheel(out)
    project = ["--pyproject", str(PROJECT), "--output-reproducible", "--output-file", str(out / "sbom.cdx.json")]
    _run(sys.executable, "-W", "ignore::UserWarning", "-m", "cyclonedx_py", "requirements", LOCK, *project)
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(out.iterdir())]
    (out / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    sys.stdout.writelines(sums)


def build_wheel(out: Path) -> None:
    """Write the wheel of HEAD into `out`, whatever the working tree holds."""
    uv = [sys.executable, "-m", "uv", "build", "--no-build-isolation", "--python", sys.executable, "--offline"]
    uv += ["--quiet", "--no-create-gitignore", "--out-dir", str(out)]  # the lock holds what it needs: no network
    with tempfile.TemporaryDirectory(prefix="enricher-release-") as folder:
        with tarfile.open(
            fileobj=io.BytesIO(_run("git", "-c", "tar.umask=0022", "archive", "HEAD", *SOURCES))
        ) as files:
            files.extractall(folder, filter="data")
        _run(*uv, "--wheel", folder)


def _run(*command: str) -> bytes:
    """The output of a program, for which the time of HEAD is now. Raises CalledProcessError after its own message."""
    time_s = subprocess.check_output(["git", "log", "-1", "--format=%ct"], text=True).strip()  # noqa: S607  as everybody
    environment = {**os.environ, "SOURCE_DATE_EPOCH": time_s}
    return subprocess.run(command, stdout=subprocess.PIPE, env=environment, umask=0o022, check=True).stdout


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["build"]:
            build(Path("dist"))
        case ["build", "--out", folder]:
            build(Path(folder))
        case [number] if not number.startswith("-"):
            prepare(number)
        case _:
            sys.exit("scripts/release: say VERSION, 'build' or 'build --out FOLDER'; see --help")
