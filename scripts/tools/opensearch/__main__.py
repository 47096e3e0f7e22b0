"""`scripts/opensearch`: a local OpenSearch. Results go to standard output, progress to standard error."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from tools.archives import ArchiveError, ArchiveLock, unpacked
from tools.command_line import remark, run
from tools.java_service import JavaService, print_status
from tools.opensearch.errors import OpenSearchError
from tools.opensearch.server import LOCK_PATH, OpenSearch

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="A real OpenSearch of one node on this machine, without users and TLS. Its indices stay until stop --erase.",
)
Data = Annotated[
    Path | None,
    typer.Option("--data", help="Folder for indices, log and settings; pass the same one to every command."),
]
Port = Annotated[int | None, typer.Option("--port", help="Port [default: 9200, or a free one if that is taken].")]


@app.command()
def start(port: Port = None, data: Data = None) -> None:
    """Start OpenSearch and return when it answers. Prints the line that points the indexer at it."""
    service = JavaService(OpenSearch, data)
    url = service.url()
    if url is None:
        remark("Starting OpenSearch ...")
        started_s = time.monotonic()
        url = service.start(port)
        remark(f"It answers after {time.monotonic() - started_s:.1f} s; indices and log in {service.folder}.")
    else:
        remark("OpenSearch is already running; nothing to do.")
        if port is not None and not url.endswith(f":{port}"):
            raise OpenSearchError(f"it is at {url}: stop it first with `scripts/opensearch stop`")
    print(f"export ENRICHER_INDEX__URL={url}")


@app.command()
def stop(
    data: Data = None,
    erase: Annotated[bool, typer.Option("--erase", help="Remove the indices too.")] = False,  # noqa: FBT002  typer's way
) -> None:
    """Stop OpenSearch. Does nothing if none runs."""
    service = JavaService(OpenSearch, data)
    remark("OpenSearch has been stopped." if service.stop() else "No OpenSearch is running; nothing to do.")
    if erase:
        service.erase()
        remark(f"The indices under {service.folder} have been removed.")


@app.command()
def status(data: Data = None) -> None:
    """Tell whether OpenSearch runs and answers: exit code 0 if so, 3 if not."""
    raise typer.Exit(print_status(JavaService(OpenSearch, data)))


@app.command()
def fetch() -> None:
    """Download OpenSearch into the user's cache (162 MB, once) and verify every file; start does this if needed."""
    lock = ArchiveLock.read(LOCK_PATH)
    remark(f"OpenSearch {lock.version} is complete in {unpacked(lock, lock.cache_folder)}.")


def main() -> None:
    """Run the command line."""
    run(app, "scripts/opensearch", OpenSearchError, ArchiveError)


if __name__ == "__main__":
    main()
