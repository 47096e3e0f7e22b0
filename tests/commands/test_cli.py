"""The command line as a shell sees it: its streams closed, full or of an old encoding, and Ctrl-C while it loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ENRICHER = [sys.executable, "-m", "enricher"]
posix = pytest.mark.skipif(sys.platform == "win32", reason="as a POSIX shell does it")


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """Run `command`, in which $0 is the program."""
    return subprocess.run(
        ["/bin/sh", "-c", command, *ENRICHER], capture_output=True, text=True, timeout=120, check=False
    )


@posix
@pytest.mark.parametrize(
    ("command", "closed"), [("settings", ">&-"), ("settings --markdown", "<&- >&- 2>&-"), ("enrich -", "<&- >&-")]
)
def test_closed_streams_are_streams_to_nowhere(command: str, closed: str) -> None:
    """Some daemons start their children so; a file that got the number of standard input would even be read as articles."""
    done = shell(f'"$0" "$@" {command} </dev/null {closed}')
    assert (0, "") == (done.returncode, done.stdout)
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize("command", ["--version", "settings", "settings --markdown"])
def test_a_full_disk_is_told_in_a_line(command: str) -> None:
    """However much was written before it was full."""
    done = shell(f'"$0" "$@" {command} >/dev/full')
    assert (1, "enricher: cannot write the output: No space left on device\n") == (done.returncode, done.stderr)


@posix
def test_what_the_encoding_of_the_output_lacks_is_written_in_escapes() -> None:
    """A pipe on Windows, or an old locale: nothing is lost, and nothing ends in a traceback."""
    done = shell('ENRICHER_KAFKA__GROUP_ID=\u0142\u00f3d\u017a PYTHONIOENCODING=ascii "$0" "$@" settings')
    assert 0 == done.returncode, done.stderr
    assert r"GROUP_ID=\u0142\xf3d\u017a " in done.stdout


def test_ctrl_c_while_it_loads_ends_it_without_a_word(tmp_path: Path) -> None:
    """A module that is loaded on the way stands for somebody who presses it."""
    (tmp_path / "typer.py").write_text(
        "import signal, time\nsignal.raise_signal(signal.SIGINT)\ntime.sleep(60)\n", "utf-8"
    )
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import enricher.cli"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert (130, b"", b"") == (done.returncode, done.stdout, done.stderr)
