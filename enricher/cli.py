"""The command line: options before the command, logging, exit codes. `enricher.commands` lists the commands.

Imports little: a command's module is imported when the command is called, so `enricher --help` and completion are quick.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pkgutil import resolve_name
from typing import Annotated, Any

# The kernel drops signals to process 1 (a container's first) that have no handler; a command installs its own later.
if os.getpid() == 1:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))

# The tokenizer library reads this when it is loaded: our worker threads tokenize, and its own thread pool would compete.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@contextmanager
def _exiting_on_ctrl_c() -> Iterator[None]:
    """While modules load, Ctrl-C ends the process at once: there is nothing to clean up, and no traceback to read."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


with _exiting_on_ctrl_c():
    import logging
    from pathlib import Path

    import typer
    from typer.core import TyperCommand, TyperGroup
    from typer.main import get_command

    from enricher.commands import GROUPS, help_of, unwrap
    from enricher.errors import FatalError
    from enricher.worker.runtime.watchdog import ProcessTimer
    from enricher.worker.telemetry import logs

log = logging.getLogger("enricher")

EXIT_CODES = {
    0: "done, or stopped on request",
    1: "a bug, an input or output that cannot be used, or code that held the interpreter's lock beyond its bound",
    2: "settings or usage",
    3: "the model or its device",
    4: "the broker, the schema registry or the search index refuses (a right, a topic, a password) or does not answer",
    5: "fenced: a newer producer has its transactional id; a restart goes on",
    6: "the broker, the search index, or the schema registry at the start, is not reachable, or did not come back (run)",
    7: "no progress (the watchdog ended the process)",
    8: "the exactly-once promise does not hold (verify), or the search index is not right (index verify)",
    9: "further behind than allowed (lag)",
    10: "lines could not be enriched: all of them, or with --strict any (enrich)",
    11: "the schema registry says that the schema of records is not compatible (schemas)",
    12: "dead letters reached a limit, and none beyond it is committed (run, index run)",
    13: "more findings are lost or relabelled than is allowed (model compare)",
    130: "ended by Ctrl-C before the work was done (143: by SIGTERM)",
}
_EPILOG = "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + "."

_Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log at debug level too.")]
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Log warnings and errors only.")]
_Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="The TOML file of settings, instead of that of ENRICHER_CONFIG. Environment variables take precedence.",
    ),
]


class _LazyCommand(TyperCommand):
    """A command in its group's help; the command's module is imported when it is called or completed."""

    def __init__(self, name: str, target: str) -> None:
        super().__init__(name, help=help_of(target))
        self._target = f"enricher.{target}"

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:  # noqa: ANN401  classes of typer that it does not export
        with _exiting_on_ctrl_c():
            function = resolve_name(self._target)
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        alone.command(self.name, cls=_Command, help=unwrap(function.__doc__))(function)
        return get_command(alone).make_context(info_name, args, parent, **extra)


class _Command(TyperCommand):
    """A command that also takes the options of `enricher` itself, before or after its name."""

    def __init__(self, *, params: list[Any], **settings: Any) -> None:  # noqa: ANN401  typer's own arguments
        common = typer.Typer(add_completion=False)
        common.command()(_apply)
        self._common = get_command(common).params
        super().__init__(params=[*params, *self._common], **settings)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  classes of typer that it does not export
        _apply(**{str(option.name): ctx.params.pop(option.name) for option in self._common})
        return super().invoke(ctx)


class _LazyGroup(TyperGroup):
    """A group of `GROUPS`. Its commands come before those that are registered with typer."""

    def __init__(self, *, name: str, commands: dict[str, Any], **settings: Any) -> None:  # noqa: ANN401  typer's own arguments
        lazy = {key: _LazyCommand(key, target) for key, target in GROUPS[name].commands.items()}
        super().__init__(name=name, commands={**lazy, **commands}, **settings)


app = typer.Typer(
    name="enricher",
    help=unwrap(GROUPS["enricher"].help),
    epilog=_EPILOG,
    cls=_LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _group in GROUPS.items():
    if _name != app.info.name:
        app.add_typer(typer.Typer(), name=_name, help=_group.help, cls=_LazyGroup, no_args_is_help=True)


def _print_version(wanted: bool) -> None:  # noqa: FBT001  typer calls it so
    if wanted:
        from enricher.distribution import installed_version  # noqa: PLC0415  40 ms that --help need not wait for

        sys.stdout.write(f"enricher {installed_version()}\n")
        raise typer.Exit


@app.callback()
def _options(
    *,
    verbose: _Verbose = False,
    quiet: _Quiet = False,
    config: _Config = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logs.TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # The client repeats itself while a broker is away; our own errors carry its latest reason.
    for noisy in ("httpx", "librdkafka", "transformers", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    _apply(verbose=verbose, quiet=quiet, config=config)


def _apply(*, verbose: _Verbose = False, quiet: _Quiet = False, config: _Config = None) -> None:
    """Apply the options of `enricher` itself, given before or after the command."""
    if verbose or quiet:
        logging.getLogger().setLevel(logging.DEBUG if verbose else logging.WARNING)
    if verbose:
        logging.getLogger("librdkafka").setLevel(logging.DEBUG)
    if config:
        from enricher.worker.settings.sources import set_config_file  # noqa: PLC0415  --help need not wait for pydantic

        set_config_file(config)


def main() -> None:
    """The console script: runs a command and turns a FatalError into its message and exit code."""
    _prepare_streams()
    try:
        _run()
    except FatalError as error:
        if error.exit_code and logs.is_json():
            log.error("ending with code %d: %s", error.exit_code, error)  # noqa: TRY400  the reason is enough
        elif error.exit_code:
            sys.stderr.write(f"enricher: {logs.escape_controls(str(error), lines=True)}\n")
        sys.exit(error.exit_code)
    except Exception:
        if not logs.is_json():
            raise
        log.critical("ending with code 1, which is a bug", exc_info=True)
        sys.exit(1)


def _run() -> None:
    """Run the command and flush its output. Raises FatalError if the output cannot be written."""
    try:
        try:
            app(obj=ProcessTimer())  # commands whose process must not hang use it
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in {errno.EPIPE, errno.ENOSPC}:
            raise
        from enricher.worker.files.plain_sinks import output_error  # noqa: PLC0415  --help need not wait for it

        raise output_error(sys.stdout.buffer, error) from error


def _prepare_streams() -> None:
    """Open streams that the caller closed (`>&-`) on the null device; else the next file would get their numbers.

    Characters that the output's encoding lacks are written as escapes, as Python does on standard error.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115  a device, as long as we run
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
