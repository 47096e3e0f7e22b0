"""`start`, `stop`, `status` and `fetch` of a local server. Results go to standard output, progress to standard error."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from tools.archives import ArchiveLock, unpacked
from tools.command_line import remark
from tools.java_service import JavaService, print_status

if TYPE_CHECKING:
    from tools.java_server import JavaServer

Data = Annotated[
    Path | None,
    typer.Option("--data", help="Folder for what it keeps, log and settings; pass the same one to every command."),
]
Port = Annotated[
    int | None, typer.Option("--port", help="Port [default: the usual one, or a free one if it is taken].")
]
Erase = Annotated[bool, typer.Option("--erase", help="Remove what it has kept, too.")]


def commands_of(kind: type[JavaServer], about: str, *, name: str, variable: str, lock_path: Path) -> typer.Typer:
    """A command line for a kind of server. `name`: as a sentence has it; `variable`: of the environment, for its URL."""
    title, script = f"{name[0].upper()}{name[1:]}", f"scripts/{kind.NAME}"
    app = typer.Typer(
        add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, help=about
    )

    @app.command(help=f"Start {name} and return when it answers. Prints the line that points the program at it.")
    def start(port: Port = None, data: Data = None) -> None:
        service = JavaService(kind, data)
        url = service.url()
        if url is None:
            remark(f"Starting {name} ...")
            started_s = time.monotonic()
            url = service.start(port)
            remark(f"It answers after {time.monotonic() - started_s:.1f} s; log and data in {service.folder}.")
        else:
            remark(f"{title} is already running; nothing to do.")
            if port not in {None, urlsplit(url).port}:
                raise kind.ERROR(f"it is at {url}: stop it first with `{script} stop`")
        print(f"export {variable}={url}")

    @app.command(help=f"Stop {name}; what it keeps stays unless --erase is given. Does nothing if it does not run.")
    def stop(data: Data = None, erase: Erase = False) -> None:  # noqa: FBT002  typer's way
        service = JavaService(kind, data)
        remark(f"{title} has been stopped." if service.stop() else f"{title} is not running; nothing to do.")
        if erase:
            service.erase()
            remark(f"What it kept under {service.folder} has been removed.")

    @app.command(help=f"Tell whether {name} runs and answers: exit code 0 if so, 3 if not.")
    def status(data: Data = None) -> None:
        raise typer.Exit(print_status(JavaService(kind, data)))

    @app.command(
        help="Download the server into the user's cache, once, and verify every file; start does this if needed."
    )
    def fetch() -> None:
        lock = ArchiveLock.read(lock_path)
        remark(f"{lock.name} {lock.version} is complete in {unpacked(lock, lock.cache_folder)}.")

    return app
