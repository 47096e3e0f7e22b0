"""A headless Chromium, driven by its DevTools protocol over two pipes: nothing to install besides the browser."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.waiting import Closing, wait_until

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
WAIT_S = 60.0
_ABOVE = 20
"""Our file descriptors start here, above 3 and 4, which the browser reads and writes."""
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def chromium() -> str | None:
    """The path of the browser; None if this machine has none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class BrowserError(Exception):
    """The browser failed to execute a command."""


class Browser(Closing):
    """One page of one browser. `console`: its console messages; `requested`: every address that the page requested."""

    def __init__(self, program: str) -> None:
        self.console: list[str] = []
        self.requested: list[str] = []
        self._folder = tempfile.mkdtemp(prefix="enricher-browser-")
        self._answers: dict[int, dict[str, Any]] = {}
        self._arrived = threading.Condition()
        self._number = 0
        self._session: str | None = None
        self._process, self._to, from_browser = _start(program, self._folder)
        self._reader = threading.Thread(target=self._read, args=(from_browser,), name="browser", daemon=True)
        self._reader.start()
        target = self.tell("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.tell("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.tell(f"{domain}.enable")

    def tell(self, method: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401  the protocol's own
        """Send a command of the protocol; returns its answer. Raises BrowserError."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": arguments}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        with self._arrived:
            if not self._arrived.wait_for(lambda: number in self._answers, WAIT_S):
                raise BrowserError(f"no answer to {method} within {WAIT_S:g} s")
            answer = self._answers.pop(number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def size(self, width: int, *, dark: bool = False) -> None:
        """Set the window size in CSS pixels, and the preference for dark colours."""
        self.tell(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.tell("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        """Load a page; clears what was recorded for the last one."""
        self.tell("Page.navigate", url="about:blank")
        self.console.clear()
        self.requested.clear()
        self.tell("Page.navigate", url=url)
        self.until(lambda: self._is_loaded(url), f"{url} is loaded")

    def value(self, expression: str) -> Any:  # noqa: ANN401  whatever it is
        """Evaluate a JavaScript expression in the page. Raises BrowserError if it throws."""
        answer = self.tell("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until `holds()` is true, checked ten times per second. Raises BrowserError on timeout."""
        if not wait_until(holds, WAIT_S):
            raise BrowserError(f"not within {WAIT_S:g} s: {what}; console: {self.console}")

    def close(self) -> None:
        """End the browser."""
        self._process.kill()
        self._process.wait()
        self._reader.join(WAIT_S)
        os.close(self._to)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _is_loaded(self, url: str) -> bool:
        try:
            return bool(self.value("[location.href, document.readyState]") == [url, "complete"])
        except BrowserError:  # between two pages nothing can be evaluated
            return False

    def _read(self, source: int) -> None:
        rest = b""
        with os.fdopen(source, "rb", buffering=0) as pipe:
            while part := pipe.read(65_536):
                *messages, rest = (rest + part).split(b"\0")
                for message in messages:
                    self._take(json.loads(message))

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            with self._arrived:
                self._answers[message["id"]] = message
                self._arrived.notify_all()
        elif message["method"] == "Network.requestWillBeSent":
            self.requested.append(message["params"]["request"]["url"])
        elif message["method"] == "Runtime.exceptionThrown":
            self.console.append(str(message["params"]["exceptionDetails"]))
        elif message["method"] == "Runtime.consoleAPICalled":
            self.console.append(str(message["params"]["args"]))
        elif message["method"] == "Log.entryAdded":
            self.console.append(message["params"]["entry"]["text"])


def _start(program: str, folder: str) -> tuple[subprocess.Popen[bytes], int, int]:
    """Start the browser; returns the process and our ends of its two pipes."""
    theirs_in, to = map(_move, os.pipe())
    from_browser, theirs_out = map(_move, os.pipe())
    command = (program, *_OPTIONS, f"--user-data-dir={Path(folder) / 'profile'}")
    process = subprocess.Popen(
        # The shell gives the pipes the numbers that the browser expects.
        [*("bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash"), *command],
        pass_fds=(theirs_in, theirs_out),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    return process, to, from_browser


def _move(descriptor: int) -> int:
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE)
    os.close(descriptor)
    return moved
