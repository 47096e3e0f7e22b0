"""The Markdown pages: their links, the paths, commands and calls that they name, their words and their width."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from commands.cli_runner import run
from support.offenders import assert_none

from enricher.commands import GROUPS
from tools.tables import TABLE, with_tables

ROOT = Path(__file__).parent.parent
MAX_README_LINES = 100
MAX_PROSE_CHARS = 100
CODE = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
NAMED_PATH = re.compile(r"`((?:enricher|scripts|deploy|schemas|tests|\.ci|\.github)/[\w./-]+)[^`]*`")
MADE_BY_A_RUN = ("scripts/locked/base-image.txt",)
"""Files that a command writes where somebody runs it; they need not be in the repository."""


@cache
def pages() -> list[Path]:
    """Every Markdown page of the repository: what a run leaves beside them, such as a report, is none of ours."""
    listed = subprocess.run(["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file())


def name_of(page: Path) -> str:
    """A page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


def prose_of(page: Path) -> str:
    """A page without its blocks of code, in which the lines stay where they are."""
    return CODE.sub(lambda block: "\n" * block[0].count("\n"), page.read_text("utf-8"))


@cache
def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, by GitHub's rule: lower case, punctuation dropped, spaces to hyphens."""
    headings = re.findall(r"^#+ (.+)$", prose_of(page), re.MULTILINE)
    texts = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts} | set(
        re.findall(r'<a (?:id|name)="([^"]+)"', page.read_text("utf-8"))
    )


def dead_links(page: Path) -> Iterator[str]:
    """Links of a page that lead to no file, or to no heading of a page."""
    for target in LINK.findall(prose_of(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors_of(file)):
            yield target


def long_lines(page: Path) -> Iterator[str]:
    """Lines of prose that are too long, though they could be broken. Tables and pictures cannot be."""
    for number, line in enumerate(prose_of(page).splitlines(), 1):
        unbreakable = line.lstrip().startswith(("|", "![", "<", "#")) or " " not in line[:MAX_PROSE_CHARS].strip()
        if len(line) > MAX_PROSE_CHARS and not unbreakable:
            yield f"{number}: {line}"


def test_there_are_pages() -> None:
    """Guards the tests below against a search that finds nothing."""
    assert {"README.md", "CONTRIBUTING.md", "deploy/README.md", "enricher/README.md"} <= set(map(name_of, pages()))


def test_links_lead_somewhere() -> None:
    """Every relative link leads to a file, and every anchor to a heading."""
    assert_none(f"{name_of(page)}: {link}" for page in pages() for link in dead_links(page))


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    """The negative control: a file, an anchor and a picture that are not there."""
    (tmp_path / "other.md").write_text("# Some `heading`, here\n")
    page = tmp_path / "page.md"
    page.write_text("# One\n[a](gone.md) [b](other.md#no) ![c](no.png) [d](other.md#some-heading-here) [e](#one)\n")
    assert list(dead_links(page)) == ["gone.md", "other.md#no", "no.png"]


@pytest.mark.filterwarnings("ignore:.* found in sys.modules:RuntimeWarning")  # other tests have imported it
def test_tables_are_what_their_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of settings, metrics, spans, headers, promises and the chart's values; `scripts/tables` writes them."""

    def printed(arguments: str) -> str:
        option, module, *rest = arguments.split()
        assert "-m" == option
        monkeypatch.setattr(sys, "argv", [module, *rest])
        code: object = 0
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            code = end.code
        assert not code, arguments
        return capsys.readouterr().out

    monkeypatch.chdir(ROOT)
    texts = {name_of(page): text for page in pages() if TABLE.search(text := page.read_text("utf-8"))}
    assert 7 == sum(len(TABLE.findall(text)) for text in texts.values())
    assert_none(f"{name}: run scripts/tables" for name, text in texts.items() if text != with_tables(text, printed))
    assert "| old |" not in with_tables("<!-- printed by: python -m x -->\n| old |\n<!-- end -->", str)


def dead_paths(page: Path) -> Iterator[str]:
    """Paths of the repository in a page's inline code that lead nowhere."""
    for path in sorted(set(NAMED_PATH.findall(prose_of(page)))):
        made = path.startswith(MADE_BY_A_RUN)
        if not made and not (ROOT / path).exists() and not (page.parent / path).exists():
            yield path


def test_named_paths_exist() -> None:
    """The change log also names what is gone."""
    named = (page for page in pages() if page.name != "CHANGELOG.md")
    assert_none(f"{name_of(page)}: {path}" for page in named for path in dead_paths(page))


def test_prose_is_wrapped() -> None:
    """At 100 characters; tables, code and pictures may be wider."""
    assert_none(f"{name_of(page)}:{line}" for page in pages() for line in long_lines(page))


def test_the_site_lists_every_page() -> None:
    """`scripts/site` refuses a page that its navigation lacks; few who write one build the site."""
    navigation = (ROOT / "scripts" / "tools" / "site" / "mkdocs.yml").read_text("utf-8")
    listed = re.findall(r"^ +- (?:\w+: )?(\S+\.md)$", navigation, re.MULTILINE)
    assert sorted(name for name in map(name_of, pages()) if not name.startswith(".github/")) == sorted(listed)


def test_the_readme_is_short() -> None:
    """What it is, how to run it, what it promises; the rest is on pages that it links."""
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= MAX_README_LINES


def test_commands_and_exit_codes_are_those_of_the_program() -> None:
    """The page about running it names every command and exit code of `enricher --help`, and no other."""
    page = (ROOT / "deploy" / "running.md").read_text("utf-8")
    shown = run("--help", env={"COLUMNS": "1000", "NO_COLOR": "1", "TERM": "dumb"})
    listed, _, codes = shown.stdout.partition("Exit codes:")
    commands = re.findall(r"^[^\w-]*([a-z][a-z-]*) {2,}", listed, re.MULTILINE)
    assert set(re.findall(r"^\| `enricher ([a-z][a-z-]*)", page, re.MULTILINE)) == set(commands) != set()
    assert set(re.findall(r"^\| (\d+) \|", page, re.MULTILINE)) == set(re.findall(r"\b\d+\b", codes)) != set()


def test_every_command_of_a_group_is_on_some_page() -> None:
    """By its whole name, such as `enricher topics create`."""
    text = "\n".join(path.read_text("utf-8") for path in pages())
    whole = {f"{group} {name}" for group, each in GROUPS.items() if group != "enricher" for name in each.commands}
    assert set() == {each for each in whole if f"enricher {each}" not in text} != whole


def test_the_calls_that_one_article_takes_are_in_the_code() -> None:
    """Every class, function and method of the list in `enricher/README.md` is there by that name."""
    section = (ROOT / "enricher" / "README.md").read_text("utf-8").partition("## One article")[2].partition("\n## ")[0]
    calls = re.findall(r"`(?:([A-Za-z]+)\.)?([a-z_]+|[A-Z][A-Za-z]+)(?:\(\.\.\.\))?`", section)
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "enricher").rglob("*.py"))
    owners = {owner for owner, _ in calls if owner[:1].isupper()} | {name for _, name in calls if name[:1].isupper()}
    names = {name for _, name in calls if not name[:1].isupper()}
    assert len(names) > 20
    assert set() == owners - set(re.findall(r"^class (\w+)\b", code, re.MULTILINE))
    assert set() == names - set(re.findall(r"(?:\bdef |\.)(\w+)\(", code))


def tools_of(lines: Iterable[str]) -> set[str]:
    """The tools that lines of a script or commands of hooks run out of .venv, with their subcommand."""
    found = (re.search(r"(?:/|-m )(ruff|mypy|lint-imports)\b\"?(?: (?:format|check)\b)?", line) for line in lines)
    return {each[0].lstrip("/").removeprefix("-m ").replace('"', "") for each in found if each}


def test_the_hooks_run_what_the_check_runs() -> None:
    """`.pre-commit-config.yaml` leaves out nothing that `scripts/check` runs."""
    check = (ROOT / "scripts" / "check").read_text("utf-8").splitlines()
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"][0]["hooks"]
    wanted = tools_of(line for line in check if line.startswith("run "))
    assert wanted == tools_of(hook["entry"] for hook in hooks) == {"ruff format", "ruff check", "mypy", "lint-imports"}
