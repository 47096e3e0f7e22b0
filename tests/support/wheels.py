"""A package index on loopback, and wheels for it: made up ones, and those of packages that are installed here."""

from __future__ import annotations

import base64
import hashlib
import threading
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path

_WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_GENEROUS_S = 300.0


class Index:
    """Serves the wheels in `folder` to pip and uv until `close`; `requirement` adds one and returns its line of a lock.

    A wheel in `held` is sent only when `released` is set; `asked` tells that somebody waits for one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.held: set[str] = set()
        self.asked = threading.Event()
        self.released = threading.Event()
        index = self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                if Path(self.path).name in index.held:
                    index.asked.set()
                    index.released.wait(_GENEROUS_S)
                with suppress(ConnectionError):  # a client that was killed
                    super().do_GET()

            def end_headers(self) -> None:
                self.send_header("Cache-Control", "no-cache")  # uv otherwise relies on a page for ten minutes
                super().end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name in the base class
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self._thread = threading.Thread(target=self._server.serve_forever, name="index", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """What pip's `index-url` is set to."""
        return f"http://127.0.0.1:{self._server.server_port}/simple"

    def close(self) -> None:
        """Stop serving."""
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def requirement(self, name: str, version: str, files: Mapping[str, bytes]) -> str:
        """Add a wheel with these files, and return its line for a lock."""
        wheel = self.folder / "files" / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        wheel.parent.mkdir(parents=True, exist_ok=True)
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        every = {**files, f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": _WHEEL.encode()}
        record = "".join(f"{path},sha256={_digest(content)},{len(content)}\n" for path, content in every.items())
        with zipfile.ZipFile(wheel, "w") as archive:
            for path, content in {**every, f"{info}/RECORD": f"{record}{info}/RECORD,,\n".encode()}.items():
                entry = zipfile.ZipInfo(path)
                entry.external_attr = (0o100755 if "/scripts/" in path else 0o100644) << 16
                archive.writestr(entry, content)
        sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
        page = self.folder / "simple" / name / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        with page.open("a") as listing:
            listing.write(f'<a href="/files/{wheel.name}#sha256={sha256}">{wheel.name}</a>\n')
        return f"{name}=={version} --hash=sha256:{sha256}\n"

    def installed(self, name: str) -> str:
        """Add a package as it is installed in this environment, and return its line for a lock."""
        found = distribution(name)
        files = {}
        for path in found.files or ():
            inside = f"{name}-{found.version}.data/scripts/{path.name}" if ".." in path.parts else path.as_posix()
            if "__pycache__" not in path.parts and path.name not in {"RECORD", "METADATA", "WHEEL"}:
                files[inside] = Path(str(path.locate())).read_bytes()
        return self.requirement(name, found.version, files)


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
