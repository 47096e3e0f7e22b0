"""The snippets of the pages that the tests of this folder execute, and the commands among them, on a real broker.

They run in a shell whose `enricher` is forked from a process that has the package already.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from kafka.harness import as_sent, publish, short_articles
from pages.snippets import Snippet, snippets
from support.forked import Forked
from support.heads import class_model
from support.logs import new_log
from support.models import MINILM_FOLDER
from support.operating import write
from support.patience import PATIENCE_S
from support.topics import PARTITIONS, Topics
from test_docs import ROOT

from tools.topics import make_topics

STUB_ENRICHER = str(Path(__file__).parent / "stub_enricher.py")
PAGE_S = 1.75 * PATIENCE_S
"""For all commands of a page: within the limit of a test, with its setup."""
# A worker of a page goes on for ever; here it ends when it has caught up.
PRELUDE = f"""
enricher() {{
    local code
    case "$*" in run*|"index run"*) set -- "$@" --until-caught-up;; esac
    env -0 > environment
    printf '%s\\0' "$BASHPID" "$PWD" "$@" > request
    read -r code < answer
    return "$code"
}}
kafka-configs() {{ "{ROOT}/scripts/kafka" tool kafka-configs "$@"; }}
"""


def run(commands: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Run commands in one shell in a folder; fails with their log at the first that does, or if they do not end."""
    log = new_log("page")
    with log.open("ab") as file:
        started = subprocess.Popen(
            ["/bin/bash", "-eu"],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            cwd=folder,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        try:
            started.communicate(commands.encode(), timeout=PAGE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)  # with all that it started
    assert 0 == started.returncode, log.read_text("utf-8", errors="replace")[-3000:]


def run_program(program: str, folder: Path) -> None:
    """Run a program in Python in a folder; fails with its log if it fails, or does not end."""
    path, log = folder / "program.py", new_log("page")
    path.write_text(f"import os\nos.chdir({str(folder)!r})\n{program}", "utf-8")
    with Forked([str(path)], os.environ, log) as started:
        code = started.wait(PAGE_S)
    assert 0 == code, log.read_text("utf-8", errors="replace")[-3000:]


@contextmanager
def _enricher(folder: Path) -> Iterator[None]:
    """Answers the shell's requests: each is its process id, its folder and the arguments."""
    for name in ("request", "answer"):
        os.mkfifo(folder / name)
    server = Thread(target=_serve, args=[folder], daemon=True)
    server.start()
    try:
        yield
    finally:
        with suppress(OSError):  # nobody reads: a command still runs, because the shell was ended
            os.close(os.open(folder / "request", os.O_WRONLY | os.O_NONBLOCK))  # no request: the end


def _serve(folder: Path) -> None:
    while request := (folder / "request").read_bytes():
        pid, *arguments = request.decode().split("\0")[:-1]
        lines = (folder / "environment").read_bytes().decode().split("\0")[:-1]
        environment = dict(line.split("=", 1) for line in lines)
        stdin, stdout, stderr = (Path("/proc", pid, "fd", str(number)) for number in range(3))
        with Forked([STUB_ENRICHER, *arguments], environment, stderr, stdin=stdin, stdout=stdout) as program:
            code = program.wait(PAGE_S)
        (folder / "answer").write_text(f"{code if code >= 0 else 128 - code}\n", "utf-8")


FOUND = list(snippets())
REGISTRY = "https://registry-1:8081,https://registry-2:8081"
SEARCH = "https://search-1:9200,https://search-2:9200"
"""How the pages write the URLs of a server; each has a test file, because files that ask for a server share it."""


def executed(*languages: str) -> list[Snippet]:
    """The blocks in these languages."""
    return [each for each in FOUND if each.executed and each.language in languages]


def text_of(page: str, language: str) -> str:
    """All such blocks of a page, one after the other."""
    return "\n".join(each.text for each in executed(language) if each.page == page)


def pages_with(language: str, *, server: str = "") -> list[str]:
    """The pages that have such blocks and ask for this server; without one, those that ask for none."""
    pages = dict.fromkeys(each.page for each in executed(language))
    asked = {page: next((url for url in (REGISTRY, SEARCH) if url in text_of(page, language)), "") for page in pages}
    return [page for page in pages if server == asked[page]]


def furnish(folder: Path, program: str) -> None:
    """The files and models that the pages name; the one of 45 MB only if this program does."""
    articles = short_articles(6)
    (folder / "articles.jsonl").write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in articles))
    pq.write_table(pa.Table.from_pylist(articles), folder / "articles.parquet")
    (folder / "secret").write_text("user:password")
    (folder / "models").mkdir()
    (folder / "models" / "mine").symlink_to(MINILM_FOLDER)
    if "models/topics" in program:
        class_model(MINILM_FOLDER, folder / "models" / "topics", ["politics", "sport"])


def run_commands(page: str, topics: Topics, folder: Path, servers: dict[str, str] | None = None) -> None:
    """In one shell, on a real broker with some records and a dead letter. `servers`: the real URLs of those of the page."""
    commands = text_of(page, "sh")
    furnish(folder, commands)
    publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(6)))
    write(topics.bootstrap_servers, topics.input, [{"partition": 0, "value": b"no JSON"}])
    if "enricher index run" in commands:
        make_topics(topics.bootstrap_servers, [f"{topics.output}.index-dead-letters"], PARTITIONS)
    for ours, real in {
        "broker-1:9092,broker-2:9092": topics.bootstrap_servers,
        "broker-1:9092": topics.bootstrap_servers,
        "--topic articles": f"--topic {topics.input}",
        "_TOPIC=": f"_TOPIC={topics.group}.",  # names of their own, so that no test meets another
        "GROUP_ID=": f"GROUP_ID={topics.group}.",
        "enricher.replay-47 articles": f"{topics.group}.enricher.replay-47 {topics.input}",
        "--group ": f"--group {topics.group}.",
        "--into ": f"--into {topics.group}.",
        "/models/next": str(MINILM_FOLDER),
        "/run/secrets/registry": str(folder / "secret"),
        **(servers or {}),
    }.items():
        commands = commands.replace(ours, real)
    if "enricher dead-letters" in commands or "labels" in commands or "lag" in commands:
        commands = f"enricher run\n{commands}"
    with _enricher(folder):
        run(f"{PRELUDE}set -x\n{commands}", folder, topics.environment)
