"""The command line as a shell sees it: streams, an old encoding, Ctrl-C while it loads, help, completion, a user's home."""

from __future__ import annotations

import inspect
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

import pytest
from commands.cli_runner import run
from commands.model_app import tiny_model
from support.patience import PATIENCE_S
from support.topics import QUICK_TO_START

from enricher.commands import GROUPS, help_of

ENRICHER = [sys.executable, "-m", "enricher"]
WORDS = [(name,) if group == "enricher" else (group, name) for group, each in GROUPS.items() for name in each.commands]
WIDE = {"COLUMNS": "300", "NO_COLOR": "1"}
WITHOUT_A_MODEL = {"publish", "tail", "lag", "settings", "topics"}
posix = pytest.mark.skipif(sys.platform == "win32", reason="as a POSIX shell does it")


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """Run `command`, in which "$0" "$@" is the program."""
    return subprocess.run(
        ["/bin/sh", "-c", command, *ENRICHER], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


@posix
@pytest.mark.parametrize(("command", "closed"), [("settings --markdown", "<&- >&- 2>&-"), ("enrich -", "<&- >&-")])
def test_closed_streams_become_the_null_device(command: str, closed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some daemons start children so; a file that gets the number of standard input would be read as articles."""
    for name, value in QUICK_TO_START.items():
        monkeypatch.setenv(name, value)
    done = shell(f'"$0" "$@" {command} </dev/null {closed}')
    assert (0, "") == (done.returncode, done.stdout)
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize("command", ["--version", "settings --markdown"])
def test_a_full_disk_is_one_line_on_standard_error(command: str) -> None:
    """It does not matter how much was written before the disk was full."""
    done = shell(f'"$0" "$@" {command} >/dev/full')
    assert (1, "enricher: cannot write the output: No space left on device\n") == (done.returncode, done.stderr)


@posix
def test_a_reader_that_has_gone_is_a_clean_end() -> None:
    """As with `| head`: the reader has seen enough."""
    with subprocess.Popen(
        [*ENRICHER, "settings"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert "" == process.stderr.read()
    assert 0 == process.returncode


@posix
def test_characters_that_the_encoding_lacks_are_escaped() -> None:
    """A pipe on Windows or an old locale neither loses output nor ends the command with a traceback."""
    done = shell('ENRICHER_KAFKA__GROUP_ID=\u0142\u00f3d\u017a PYTHONIOENCODING=ascii "$0" "$@" settings')
    assert 0 == done.returncode, done.stderr
    assert r"GROUP_ID=\u0142\xf3d\u017a " in done.stdout


@pytest.mark.parametrize("module", ["typer", "pydantic_settings"])
def test_ctrl_c_while_it_loads_ends_it_silently(tmp_path: Path, module: str) -> None:
    """A fake module raises the signal while the program is imported, or while the modules of its command are."""
    (tmp_path / f"{module}.py").write_text("import signal, time\nsignal.raise_signal(signal.SIGINT)\ntime.sleep(60)\n")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from enricher.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "settings"], capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert (130, b"", b"") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_every_command_has_help_and_is_in_the_help_of_its_group(words: tuple[str, ...]) -> None:
    """`-h` works like `--help`, also after a command. The group shows the first paragraph of the command's docstring."""
    result = run(*words, "-h", env=WIDE)
    assert 0 == result.exit_code
    assert f"{' '.join(words)} [OPTIONS]" in result.stdout
    assert words[-1] in help_of_group(*words[:-1])
    target = GROUPS[("enricher", *words)[-2]].commands[words[-1]]
    first, *_ = inspect.cleandoc(resolve_name(f"enricher.{target}").__doc__).split("\n\n")
    assert " ".join(first.split()) == help_of(target), "without importing the command"


@cache
def help_of_group(*words: str) -> str:
    """Run `--help` behind these words, once; returns what it prints."""
    return run(*words, "--help", env=WIDE).stdout


_HELP_OF_EACH = """
import sys
from enricher.cli import app
slow = {"confluent_kafka", "numpy", "pydantic"}
for line in sys.argv[1:]:
    app([*line.split(), "--help"], standalone_mode=False)
    slow = {"onnx", "onnxruntime", "openvino", "tokenizers", "transformers"} | (slow if not line else set())
    assert not slow & sys.modules.keys(), (line, slow & sys.modules.keys())
"""


def test_help_waits_for_no_library_that_its_command_does_not_need() -> None:
    """The help of all commands loads none; ONNX Runtime alone, which half of them never use, takes most of a second."""
    lines = ["", *(" ".join(words) for words in WORDS if words[0] in WITHOUT_A_MODEL)]
    done = subprocess.run(
        [sys.executable, "-c", _HELP_OF_EACH, *lines], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ("", 0) == (done.stderr, done.returncode)
    assert len(lines) == done.stdout.count("Usage: ")


def test_the_shell_completes_commands_and_their_options() -> None:
    """Commands come from the table, and options from the command itself."""
    words = {"COMP_WORDS": "enricher --quiet model check --gol", "COMP_CWORD": "4"}
    done = subprocess.run(
        [sys.executable, "-c", "from enricher.cli import app; app(prog_name='enricher')"],
        env=os.environ | {"_ENRICHER_COMPLETE": "complete_bash"} | words,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ["--gold"] == done.stdout.split()


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], tuple[int, int]]]:
    """The levels of the log and of the Kafka client's part of it, which are as before after the test."""
    root, client = logging.getLogger(), logging.getLogger("librdkafka")
    monkeypatch.setattr(root, "level", root.level)
    yield lambda: (root.level, client.level)
    client.setLevel(logging.ERROR)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("settings", "-q"), (logging.WARNING, logging.ERROR)),
        (("-q", "settings"), (logging.WARNING, logging.ERROR)),
        (("settings", "--verbose"), (logging.DEBUG, logging.DEBUG)),
        (("-q", "settings", "-v"), (logging.DEBUG, logging.DEBUG)),
    ],
)
def test_options_of_the_log_work_before_and_behind_the_command(
    levels: Callable[[], tuple[int, int]], words: Sequence[str], expected: tuple[int, int]
) -> None:
    """Behind it they are stronger."""
    assert 0 == run(*words).exit_code
    assert expected == levels()


@pytest.fixture
def config_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three TOML files: the default one, the one that `ENRICHER_CONFIG` names, and another."""
    for name in ("enricher", "named", "given"):
        Path(f"{name}.toml").write_text(f'[kafka]\ngroup_id = "{name}"\n', "utf-8")
    monkeypatch.setenv("ENRICHER_CONFIG", "named.toml")


@pytest.mark.usefixtures("config_files")
@pytest.mark.parametrize(
    ("words", "group"),
    [
        (("settings",), "named"),
        (("settings", "--config", "given.toml"), "given"),
        (("--config", "given.toml", "settings"), "given"),
        (("--config", "enricher.toml", "settings", "--config", "given.toml"), "given"),
    ],
)
def test_the_option_for_the_settings_file_is_stronger_than_the_variable(words: Sequence[str], group: str) -> None:
    """From weakest to strongest: enricher.toml, ENRICHER_CONFIG, --config before the command and behind it, variables."""
    assert f"GROUP_ID={group}" in run(*words).stdout
    assert "GROUP_ID=variable" in run(*words, env={"ENRICHER_KAFKA__GROUP_ID": "variable"}).stdout
    assert 2 == run("settings", "--config", "missing.toml").exit_code


def test_a_command_writes_its_cache_and_nothing_else(tmp_path: Path) -> None:
    """ONNX Runtime on Linux would store a device id and events, and send them to Microsoft."""
    home, model = tmp_path / "home", tiny_model(tmp_path / "model")
    home.mkdir()
    variables = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    done = subprocess.run(
        [sys.executable, "-m", "enricher", "enrich", "-"],
        input=b'{"id": "1", "body": "It rained."}\n',
        env={
            **variables,
            **QUICK_TO_START,
            "ENRICHER_MODEL__SOURCE": str(model),
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / "cache"),
            "TMPDIR": str(home),
        },
        stdout=subprocess.PIPE,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout.startswith(b'{"schema_version":1,"id":"1"')
    assert {"cache/enricher"} == {
        "/".join(path.relative_to(home).parts[:2]) for path in home.rglob("*") if path.is_file()
    }
