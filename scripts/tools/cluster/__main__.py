"""`scripts/cluster`: a real Kubernetes API server for tests. Results go to standard output, progress to standard error."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Annotated

import typer

from tools import ROOT
from tools.cluster import schemas as schema_files
from tools.cluster.errors import ToolsError
from tools.cluster.making import make
from tools.cluster.service import Service, default_folder, stop_all
from tools.cluster.table import Tool, chosen, folder_of, table
from tools.command_line import NOT_RUNNING, remark, run

app = typer.Typer(
    help="Kubernetes' own API server, controllers and scheduler, KEDA, and simulated nodes: on this machine, "
    "without containers, on loopback. Everything is built from source with Go, once.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
Keep = Annotated[bool, typer.Option("--keep-build", help="Keep Go's caches (gigabytes) for the next build.")]


@app.command()
def up(keep_build: Keep = False) -> None:  # noqa: FBT002  typer's way
    """Build what is missing and start the cluster.

    Returns when it answers, and prints the line that points kubectl at it.
    """
    make(_for_the_cluster(), keep=keep_build)
    service = Service(default_folder())
    running = service.running()
    if running is None:
        remark("Starting the cluster ...")
        started_s = time.monotonic()
        running = service.start()
        remark(f"The cluster answers after {time.monotonic() - started_s:.1f} s at {running.api_server}.")
    else:
        remark(f"The cluster is already running at {running.api_server}; nothing to do.")
    print(f"export KUBECONFIG={running.kubeconfig}")


@app.command()
def down(
    everything: Annotated[bool, typer.Option("--all", help="Also stop clusters that killed test runs left.")] = False,  # noqa: FBT002  typer's way
) -> None:
    """Stop the cluster and remove its state.

    The built tools stay. Does nothing if none runs.
    """
    count = stop_all() if everything else Service(default_folder()).stop()
    remark(f"The cluster has been stopped ({count} processes)." if count else "No cluster is running; nothing to do.")


@app.command()
def status() -> None:
    """Show what is built, and whether the cluster runs.

    Exit code 0 if the cluster runs and answers, 3 if not.
    """
    for tool in table().values():
        print(f"{tool.name:24} {tool.version:10} {_size(tool):>8}  {tool.reason}")
    service = Service(default_folder())
    running = service.running()
    answers = running is not None and service.client.kubectl("get", "--raw=/readyz").returncode == 0
    print(f"running at {running.api_server}" if running and answers else f"not running (state in {service.folder})")
    if not answers:
        raise typer.Exit(NOT_RUNNING)


@app.command()
def build(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[TOOL]...", help="Tools to build; default: all.")
    ] = None,
    keep_build: Keep = False,  # noqa: FBT002  typer's way
) -> None:
    """Build tools into the user's cache.

    Tools that are built already are kept. Prints the folder of each.
    """
    tools = chosen(names or table())
    make(tools, keep=keep_build)
    for tool in tools:
        print(folder_of(tool))


@app.command()
def schemas() -> None:
    """Regenerate tests/deploy/schemas/.

    For maintainers: JSON schemas of custom resources, from the operators' own definitions.
    """
    make(chosen(schema_files.SOURCES))
    for path in schema_files.write():
        print(f"{path.stat().st_size:8,} bytes  {path}")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def test(context: typer.Context) -> None:
    """Run the tests in tests/cluster/.

    Uses the running cluster, or starts one. Takes pytest's arguments.
    """
    make([*chosen(["helm"]), *_for_the_cluster()])
    command = [sys.executable, "-m", "pytest", "tests/cluster", *context.args]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "ENRICHER_CLUSTER": "1"}, check=False)
    raise typer.Exit(done.returncode)


def _for_the_cluster() -> list[Tool]:
    return [tool for tool in table().values() if tool.cluster]


def _size(tool: Tool) -> str:
    """The size of a tool, or 'missing'."""
    folder = folder_of(tool)
    if not folder.is_dir():
        return "missing"
    return f"{sum(path.stat().st_size for path in folder.iterdir()) / 1e6:.1f} MB"


def main() -> None:
    run(app, "scripts/cluster", ToolsError)


if __name__ == "__main__":
    main()
