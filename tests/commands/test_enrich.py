"""The command `enrich`: where it writes and where it refuses to write. The worker is tested elsewhere."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands.cli_runner import article, json_lines, run
from support.forked import Forked
from support.patience import PATIENCE_S, wait_until
from support.stub_worker import STUB_WORKER

from enricher.errors import NotEnriched, SettingsError
from enricher.worker.articles.record_values import json_of
from enricher.worker.commands import enrich

pytestmark = pytest.mark.usefixtures("shared_models")


@pytest.fixture
def articles(tmp_path: Path) -> Path:
    """A file of one article."""
    file = tmp_path / "articles.jsonl"
    file.write_text(json_lines(article("a")), "utf-8")
    return file


@pytest.mark.parametrize(
    "options",
    [
        ["--out", "articles.jsonl"],
        ["--dead-letters", "link"],
        ["--out", "x", "--dead-letters", "x"],
        ["--out", "x", "--dead-letters", "x.partial"],
    ],
)
def test_a_file_is_never_read_and_written_or_written_twice(articles: Path, options: list[str]) -> None:
    """Opening it for writing would empty it before its first line is read."""
    (articles.parent / "link").symlink_to(articles)
    with pytest.raises(SettingsError, match="must be different files"):
        raise run("enrich", "articles.jsonl", *options).exception or AssertionError("it was taken")
    assert json_lines(article("a")) == articles.read_text("utf-8")


def test_a_dash_as_output_is_standard_output(articles: Path) -> None:
    """`-` is standard output for records as it is standard input for articles; one device may take both outputs."""
    result = run("enrich", str(articles), "--out", "-", "--dead-letters", os.devnull)
    assert 0 == result.exit_code, result.output
    assert "a" == json.loads(result.stdout)["id"]
    assert [articles] == list(articles.parent.iterdir())


def test_a_whole_article_is_in_its_line_with_the_numbers_as_they_were(tmp_path: Path) -> None:
    """Though its own line had other line breaks."""
    line = b'{"id":"a","body":"Lisbon",\r"language":"pt","n":1.50}'
    file = tmp_path / "articles.jsonl"
    file.write_bytes(line + b"\r\n")
    result = run("enrich", str(file), env={"ENRICHER_OUTPUT__ARTICLE": "whole"})
    assert 0 == result.exit_code, result.output
    (written,) = result.stdout_bytes.splitlines()
    assert written.endswith(b',"article":' + line.replace(b"\r", b" ") + b"}")


BAD = b'{"id": 1}\n', b"Z\xfcrich\n"
"""No body; not UTF-8."""


def test_a_file_without_a_good_line_is_exit_code_10(tmp_path: Path) -> None:
    """Both outputs are written as requested; an empty file has no bad line.

    Dead letters hold their lines byte for byte, to be corrected and sent again; standard error is a log and has only the
    reasons.
    """
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(b"".join(BAD))
    output, letters = tmp_path / "records.jsonl", tmp_path / "letters.jsonl"
    result = run("enrich", str(bad), "--out", str(output), "--dead-letters", str(letters))
    assert isinstance(result.exception, NotEnriched)
    assert (10, "2 of 2 lines could not be enriched") == (result.exception.exit_code, str(result.exception))
    assert "" == output.read_text()
    without_body, latin = (json.loads(line) for line in letters.read_bytes().splitlines())
    assert BAD[0].rstrip() == without_body["line"].encode()
    assert BAD[1].rstrip() == base64.b64decode(latin["line_base64"])
    shown = run("enrich", str(bad)).stderr
    assert "InvalidArticle" in shown
    assert '"line' not in shown
    bad.write_bytes(b"")
    assert 0 == run("enrich", str(bad), "--out", str(output)).exit_code


@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        (b'[{"id": "a", "body": "x"}]\n', "jq -c '.[]'"),
        (b'\n{\n  "id": "a",\n  "body": "x"\n}\n', "jq -c .`"),
        (b"id,title,body\na,Rain,It rained.\n", "csv.DictReader"),
        (b'{"specversion": "1.0", "id": "1", "data": {"id": "a", "body": "x"}}\n', "jq -c .data"),
    ],
)
def test_a_file_in_another_format_is_named_with_a_remedy(tmp_path: Path, content: bytes, remedy: str) -> None:
    """If no line can be enriched, its first line tells what most people have instead of JSON lines."""
    file = tmp_path / "articles"
    file.write_bytes(content)
    result = run("enrich", str(file))
    assert isinstance(result.exception, NotEnriched)
    assert remedy in str(result.exception)


def test_one_bad_line_counts_only_where_strictness_is_asked_for(articles: Path) -> None:
    """Good lines are enriched in either case."""
    with articles.open("ab") as file:
        file.write(BAD[0])
    output = articles.parent / "records.jsonl"
    for options, exception in (([], type(None)), (["--strict"], NotEnriched)):
        result = run("enrich", str(articles), "--out", str(output), *options)
        assert isinstance(result.exception, exception)
        assert ["a"] == [json.loads(line)["id"] for line in output.read_bytes().splitlines()]
        output.unlink()


def test_an_output_that_exists_is_replaced_with_its_mode(articles: Path) -> None:
    """A symbolic link to it stays a link."""
    output, link = articles.parent / "records.jsonl", articles.parent / "link"
    output.write_text("old", "utf-8")
    output.chmod(0o600)
    link.symlink_to(output)
    assert 0 == run("enrich", str(articles), "--out", str(link)).exit_code
    assert "a" == json.loads(output.read_text("utf-8"))["id"]
    assert 0o600 == output.stat().st_mode & 0o777
    assert {articles, output, link} == set(articles.parent.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="there is no signal to send")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_says_so_and_leaves_no_torso(tmp_path: Path, number: int, code: int) -> None:
    """Records so far are in FILE.partial, and an earlier file of the name stays as it was."""
    output, partial = tmp_path / "records.jsonl", tmp_path / "records.jsonl.partial"
    output.write_text("of yesterday", "utf-8")
    command, log = [STUB_WORKER, "enrich", "-", "--out", str(output)], tmp_path / "log"
    with Forked(command, os.environ, log) as process:
        process.stdin.write(json_lines(article("a"), article("b")).encode())
        process.stdin.flush()
        wait_until(
            lambda: partial.exists() and partial.read_bytes().count(b"\n") >= 2, PATIENCE_S, "the articles are enriched"
        )
        process.send_signal(number)
        ended_with = process.wait(PATIENCE_S)  # before the input ends: then the run would be whole
        process.stdin.close()
    said = log.read_text("utf-8")
    assert code == ended_with, said
    assert "of yesterday" == output.read_text("utf-8")
    assert ["a", "b"] == [json.loads(line)["id"] for line in partial.read_bytes().splitlines()]
    assert str(partial) in said


def archive(path: Path, rows: Sequence[dict[str, Any]], group_rows: int = 1_000) -> Path:
    """The rows as a Parquet file."""
    pq.write_table(pa.Table.from_pylist([*rows]), path, row_group_size=group_rows)
    return path


def records_of(path: Path) -> list[Any]:
    """The records of an output as the values of their JSON; nothing for a refused row."""
    rows = pq.read_table(path).to_pylist(maps_as_pydicts="strict")
    return [orjson.loads(json_of({**row, "refused": None})) for row in rows if row["refused"] is None]


@pytest.mark.usefixtures("shared_models")
def test_an_archive_gives_the_records_of_the_same_lines(tmp_path: Path) -> None:
    """With what the settings map and repeat, to the last digit; a bad row is a row with the reason."""
    rows: list[dict[str, Any]] = [article(str(number), body=f"Ana {number} lives in Lisbon.") for number in range(8)]
    rows = [row | {"desk": {"name": "world"}} for row in rows]
    rows[5]["body"] = None
    file, lines = archive(tmp_path / "a.parquet", rows, 3), tmp_path / "a.jsonl"
    lines.write_text(json_lines(*rows), "utf-8")
    env = {"ENRICHER_ARTICLES__METADATA": '{"section": "/desk/name"}'}
    output = tmp_path / "records.parquet"
    for source, names in ((file, ["--out", str(output)]), (lines, ["--out", "lines"]), (file, ["--out", "of-rows"])):
        assert 0 == run("enrich", str(source), *names, env=env).exit_code
    assert [orjson.loads(line) for line in Path("lines").read_bytes().splitlines()] == records_of(output) != []
    assert Path("lines").read_bytes() == Path("of-rows").read_bytes()
    assert "body is not a string" == pq.read_table(output).to_pylist()[5]["refused"]["reason"]
    assert isinstance(run("enrich", str(file), "--out", str(output), "--strict", env=env).exception, NotEnriched)


@pytest.fixture
def _no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object, **__: object) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(enrich, "load_tasks", load)


@pytest.mark.usefixtures("_no_model")
def test_what_cannot_be_done_is_refused_before_the_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns that are missing, an output that does not fit its input, and Parquet without the extra, each by name."""
    file, lines = archive(tmp_path / "a.parquet", [{"uuid": "a", "body": "x"}]), tmp_path / "a.jsonl"
    lines.write_text(json_lines(article("a")), "utf-8")
    mapped = {"ENRICHER_ARTICLES__FIELDS": '{"id": "/uuid"}'}

    def refusal(*arguments: str, env: dict[str, str] | None = None) -> str:
        error = run("enrich", *arguments, env=env).exception
        assert isinstance(error, SettingsError)
        return str(error)

    assert "no column for id at /id (articles.fields)" in refusal(str(file))
    (tmp_path / "folder.parquet").mkdir()
    assert "is a folder" in refusal(str(file), "--out", str(tmp_path / "folder.parquet"), env=mapped)
    assert "--dead-letters: " in refusal(str(file), "--out", "b.parquet", "--dead-letters", "c", env=mapped)
    assert "b.parquet: only articles in Parquet" in refusal(str(lines), "--out", "b.parquet")
    assert "must be different files" in refusal(str(file), "--out", str(file), env=mapped)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert refusal(str(file)) == f"{file} is Parquet, which needs pyarrow: pip install 'kafka-enricher[parquet]'"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no signal to send")
def test_an_interrupted_run_leaves_the_rows_so_far_in_a_file_that_can_be_read(tmp_path: Path) -> None:
    """Beside the output, which gets its name when it is whole."""
    rows = [{"id": str(each), "body": "It rained all day. " * (each % 9 + 1)} for each in range(20_000)]
    file = archive(tmp_path / "a.parquet", rows, 250)
    output, partial, log = tmp_path / "records.parquet", tmp_path / "records.parquet.partial", tmp_path / "log"
    with Forked([STUB_WORKER, "enrich", str(file), "--out", str(output)], os.environ, log) as process:
        wait_until(lambda: partial.exists() and partial.stat().st_size > 10_000, PATIENCE_S, "some rows", every_s=0.01)
        process.terminate()
        assert 128 + signal.SIGTERM == process.wait(PATIENCE_S), log.read_text("utf-8")
    some = pq.read_table(partial)["id"].to_pylist()
    assert [str(each) for each in range(len(some))] == some
    assert 0 < len(some) < len(rows)
    assert not output.exists()
