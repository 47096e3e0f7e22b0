"""The command line: which commands there are, logging, exit codes. What a command does is in its own room."""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated

# The first process of a container ignores signals that it has no handler for, and importing takes a second.
if os.getpid() == 1:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
# Meanwhile Ctrl-C has nothing to end in good order, and a trace through imports tells nobody anything.
if interruptible := signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))

# Read by the tokenizer library when it is loaded: our own threads share the work, its thread pool would fight them.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import typer

from enricher.commands.doctor import doctor
from enricher.commands.enrich import enrich
from enricher.commands.lag import lag
from enricher.commands.model import model_check, model_inspect, model_prepare, model_tune
from enricher.commands.publish import publish
from enricher.commands.run import run
from enricher.commands.scaler import scaler
from enricher.commands.settings import show_settings
from enricher.commands.tail import tail
from enricher.commands.topics import topics_create
from enricher.commands.verify import verify
from enricher.errors import FatalError
from enricher.files.sink import abandon, output_closed
from enricher.telemetry import logs

log = logging.getLogger("enricher")

if interruptible:
    signal.signal(signal.SIGINT, signal.default_int_handler)

EXIT_CODES = {
    0: "done, or stopped on request",
    1: "a bug, or an input or output that cannot be used",
    2: "settings or usage",
    3: "the model or its device",
    4: "the broker refuses (a right, a topic, a password), or does not answer",
    5: "fenced by a newer process of the same name",
    6: "the broker is not there, or did not come back (run)",
    7: "no progress (the watchdog's)",
    8: "what was promised does not hold (verify)",
    9: "further behind than asked (lag)",
    10: "lines that could not be enriched: all, or with --strict any (enrich)",
    130: "ended by Ctrl-C before it was done (143: by SIGTERM)",
}
_EPILOG = "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + "."
_HELP = (
    "Articles in, entities out, exactly once: from Kafka to Kafka, with the model in the same process.\n\n"
    "Settings come from ENRICHER_... variables, a .env file or enricher.toml (or the file that ENRICHER_CONFIG names); "
    "`enricher settings` lists them."
)

app = typer.Typer(
    name="enricher",
    help=_HELP,
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
topics = typer.Typer(help="The topics that a worker needs.", no_args_is_help=True)
app.add_typer(topics, name="topics")
models = typer.Typer(help="Models: prepare a folder, check a precision, look inside, tune.", no_args_is_help=True)
app.add_typer(models, name="model")
app.command("run")(run)
app.command("enrich")(enrich)
app.command("publish")(publish)
app.command("tail")(tail)
app.command("verify")(verify)
app.command("lag")(lag)
app.command("scaler")(scaler)
app.command("doctor")(doctor)
app.command("settings")(show_settings)
topics.command("create")(topics_create)
models.command("prepare")(model_prepare)
models.command("check")(model_check)
models.command("inspect")(model_inspect)
models.command("tune")(model_tune)


def _print_version(wanted: bool) -> None:  # noqa: FBT001  typer calls it so
    if wanted:
        sys.stdout.write(f"enricher {version('enricher')}\n")
        raise typer.Exit


@app.callback()
def _options(
    *,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say more about what happens inside.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Warnings and errors only.")] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    level = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logs.TextLines())
    logging.basicConfig(level=level, handlers=[handler])
    # The client repeats itself while a broker is away; its last word is in our own errors anyway.
    logging.getLogger("librdkafka").setLevel(logging.DEBUG if verbose else logging.ERROR)
    for noisy in ("httpx", "transformers", "urllib3"):
        logging.getLogger(noisy).setLevel(logging.ERROR)


def main() -> None:
    """The console script: runs a command and turns a FatalError into its message and exit code."""
    _prepare_streams()
    try:
        _run()
    except FatalError as error:
        if error.exit_code:
            _tell_end(error)
        sys.exit(error.exit_code)
    except Exception:
        if not logs.is_json():
            raise
        log.critical("ending with code 1, which is a bug", exc_info=True)
        sys.exit(1)


def _tell_end(error: FatalError) -> None:
    """The last line: for who reads a terminal, or in the form of the log where that is read by machines."""
    if logs.is_json():
        log.error("ending with code %d: %s", error.exit_code, error)
    else:
        sys.stderr.write(f"enricher: {logs.escaped(str(error), lines=True)}\n")


def _run() -> None:
    """The command, and what it wrote. Raises FatalError where that cannot be written."""
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise output_closed(sys.stdout.buffer) from error
        if error.errno == errno.ENOSPC:
            abandon(sys.stdout.buffer)
            raise FatalError(f"cannot write the output: {error.strerror}") from error
        raise


def _prepare_streams() -> None:
    """A stream that is closed (`>&-`) is one to nowhere, or the next file that is opened would get its number.

    What the encoding of the output does not have is written as an escape, as standard error does.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115  a device, as long as we run
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
