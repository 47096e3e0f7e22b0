"""`scripts/registry`: a local schema registry, and articles by a schema for a first try.

Results go to standard output, progress to standard error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tools.archives import ArchiveError
from tools.command_line import remark, run
from tools.java_server import commands_of
from tools.kafka.versions import ClusterError
from tools.registry.server import LOCK_PATH, Registry, RegistryError

app = commands_of(
    Registry,
    "A real schema registry (Apicurio, Confluent's API) on this machine. It keeps its schemas until stop --erase.",
    name="the registry",
    variable="ENRICHER_REGISTRY__URL",
    lock_path=LOCK_PATH,
)


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
    run(app, "scripts/registry", RegistryError, ArchiveError, ClusterError)


if __name__ == "__main__":
    main()
