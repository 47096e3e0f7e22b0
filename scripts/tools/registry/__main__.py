"""`scripts/registry`: a local schema registry, and articles by a schema for a first try.

Results go to standard output, progress to standard error.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from tools.archives import ArchiveError, ArchiveLock, unpacked
from tools.command_line import remark, run
from tools.java_service import JavaService, print_status
from tools.kafka.errors import ClusterError
from tools.registry.errors import RegistryError
from tools.registry.server import LOCK_PATH, Registry

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="A real schema registry (Apicurio, Confluent's API) on this machine. It keeps its schemas.",
)
Data = Annotated[
    Path | None,
    typer.Option("--data", help="Folder for its schemas, log and settings; pass the same one to every command."),
]
Port = Annotated[int | None, typer.Option("--port", help="Port [default: 8081, or a free one if that is taken].")]


@app.command()
def start(port: Port = None, data: Data = None) -> None:
    """Start the registry and return when it answers. Prints the line that points the worker at it."""
    service = JavaService(Registry, data)
    url = service.url()
    if url is None:
        remark("Starting the schema registry ...")
        started_s = time.monotonic()
        url = service.start(port)
        remark(f"It answers after {time.monotonic() - started_s:.1f} s; settings and log in {service.folder}.")
    else:
        remark("The registry is already running; nothing to do.")
        if port is not None and f":{port}/" not in url:
            raise RegistryError(f"it is at {url}: stop it first with `scripts/registry stop`")
    print(f"export ENRICHER_REGISTRY__URL={url}")


@app.command()
def stop(
    data: Data = None,
    erase: Annotated[bool, typer.Option("--erase", help="Remove its schemas too.")] = False,  # noqa: FBT002  typer's way
) -> None:
    """Stop the registry; its schemas are kept unless --erase is given. Does nothing if none runs."""
    service = JavaService(Registry, data)
    remark("The registry has been stopped." if service.stop() else "No registry is running; nothing to do.")
    if erase:
        service.erase()
        remark(f"The schemas under {service.folder} have been removed.")


@app.command()
def status(data: Data = None) -> None:
    """Tell whether the registry runs and answers: exit code 0 if so, 3 if not."""
    raise typer.Exit(print_status(JavaService(Registry, data)))


@app.command()
def fetch() -> None:
    """Download the server into the user's cache (159 MB, once) and verify every file; start does this if needed."""
    lock = ArchiveLock.read(LOCK_PATH)
    folder = unpacked(lock, lock.cache_folder)
    remark(f"Apicurio {lock.version} is complete in {folder}.")


@app.command()
def publish(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="JSON lines, one article each; `-` is standard input.")
    ],
    *,
    schema: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Avro (.avsc), Protobuf (.proto; its first message) or JSON Schema (.json) to write the lines by.",
        ),
    ],
) -> None:
    """Publish articles to the input topic, written by a schema.

    The schema is registered under INPUT_TOPIC-value; fields that it does not have are left out. Broker, topic, registry and
    `articles.fields` come from the worker's settings (ENRICHER_...).
    """
    from enricher.errors import EnricherError  # noqa: PLC0415  the other commands need nothing of the worker
    from tools.registry.publishing import publish_lines  # noqa: PLC0415  as above

    try:
        count = publish_lines(files, schema)
    except EnricherError as error:
        raise RegistryError(str(error)) from error
    remark(f"{count:,} articles are published.")


def main() -> None:
    """Run the command line."""
    run(app, "scripts/registry", RegistryError, ArchiveError, ClusterError)


if __name__ == "__main__":
    main()
