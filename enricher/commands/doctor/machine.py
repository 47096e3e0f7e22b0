"""Checks of the model and the machine: loads the model as a worker does, enriches one sentence, and looks at memory."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from enricher.app.model import Model, load_model, window_cutter
from enricher.commands.doctor.findings import Finding, Reporter
from enricher.core.assembly import settle
from enricher.core.decoding import LabelScheme
from enricher.errors import ModelError, SettingsError
from enricher.inference.device.cores import available_cores
from enricher.inference.device.cuda import cuda_problem
from enricher.inference.run.selection import missing_reports
from enricher.records import Article, Batch, EnrichedRecord, Partition, RawRecord, Ticket
from enricher.settings import Settings

_SENTENCE = "Angela Merkel met Siemens engineers in Berlin."
_GPU = Path("/dev/nvidia0")
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))

_report = Reporter("model")
_machine = Reporter("machine")


def model_findings(settings: Settings) -> Iterator[Finding]:
    """Load the model, warm it up and run it on one sentence."""
    began_s = time.monotonic()
    try:
        model = load_model(settings)
    except ModelError as error:
        advice = "See model.source, model.device and model.precision in 'enricher settings'."
        yield _report.fail("model", str(error), advice)
        return
    except SettingsError as error:
        yield _windows(error)
        return
    seconds = time.monotonic() - began_s
    yield _report.ok("model", f"{model.card.name} ({model.card.digest[:19]}), loaded and warm after {seconds:.1f} s")
    yield _device(settings, model)
    yield _precision(settings, model)
    try:
        yield _sentence(settings, model)
    except SettingsError as error:
        yield _windows(error)


def _windows(error: SettingsError) -> Finding:
    """The window settings do not fit the model, which shows when it is loaded or when windows are cut."""
    return Reporter("settings").fail("windows", str(error), "See the batching settings in 'enricher settings'.")


def machine_findings(settings: Settings) -> Iterator[Finding]:
    """Cores and memory; call it once the model is loaded, so that its memory counts."""
    yield _machine.ok("cores", f"{available_cores()} that this process may use")
    limit_bytes, peak_bytes = memory_limit_bytes(), _peak_bytes()
    if limit_bytes is None or peak_bytes is None:
        yield _machine.ok("memory", "this system does not report it")
        return
    # Raw records, their decoded texts and their tokens: about three times the bytes in flight.
    needed_bytes = peak_bytes + 3 * settings.worker.max_in_flight_bytes
    seen = f"{limit_bytes / 1e9:.1f} GB; with the model loaded {peak_bytes / 1e9:.1f} GB of it are in use"
    if limit_bytes < needed_bytes:
        advice = f"Up to {needed_bytes / 1e9:.1f} GB may be used: raise the limit, or lower worker.max_in_flight_bytes."
        yield _machine.warn("memory", seen, advice)
    else:
        yield _machine.ok("memory", f"{seen}, up to {needed_bytes / 1e9:.1f} GB may be used")


def memory_limit_bytes() -> int | None:
    """Memory that this process may use: the limit of the container or the machine; None if unknown."""
    limits = []
    for path in _CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):
            limits.append(int(path.read_text()))
    with contextlib.suppress(OSError, ValueError, AttributeError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=None)


def _device(settings: Settings, model: Model) -> Finding:
    asked, used = settings.model.device, model.prepared.device
    problem = cuda_problem() if (asked, used) == ("auto", "cpu") else None
    why = f"device auto: no CUDA, {problem}" if problem else f"device {asked}"
    seen = f"{used} by {model.engine.provider}, {model.concurrency} thread(s) ({why})"
    if problem and _GPU.exists():
        return _report.warn(
            "device",
            seen,
            "There is an NVIDIA GPU that is not used; with device=cuda a worker refuses to run without it.",
        )
    return _report.ok("device", seen)


def _precision(settings: Settings, model: Model) -> Finding:
    """Which variant and why; a warning if a faster one lacks only its gate report."""
    prepared, asked = model.prepared, settings.model.precision
    faster = "".join(f"; not {name}: {why}" for name, why in prepared.rejected)
    seen = f"{model.card.precision} ({prepared.variant.name}; precision {asked}: {prepared.reason}){faster}"
    missing = missing_reports(prepared.checkpoint, prepared.device, settings.model.cache_dir)
    if asked == "auto" and not prepared.variant.reduced and missing:
        advice = f"A faster precision would run here but has no gate report: {missing[0]}"
        return _report.warn("precision", seen, advice)
    return _report.ok("precision", seen)


def _sentence(settings: Settings, model: Model) -> Finding:
    article = Article("doctor", "", _SENTENCE)
    ticket = Ticket(RawRecord(Partition("", 0), 0, None, None), 0.0, article=article)
    tokens = model.tokenizer.tokenize([article])[0]
    if isinstance(tokens, Exception):
        return _report.fail("one sentence", str(tokens), "The tokenizer does not fit the model.")
    windows = window_cutter(settings, model).cut(ticket, tokens, 0.0)
    began_s = time.monotonic()
    settle(model.engine.run(Batch(tuple(windows))), LabelScheme.from_labels(model.engine.labels))
    took_ms = 1000 * (time.monotonic() - began_s)
    if not isinstance(ticket.outcome, EnrichedRecord):
        return _report.fail("one sentence", f"{ticket.outcome}", "The model does not run on this device.")
    found = ", ".join(f"{entity['text']} {entity['label']}" for entity in ticket.outcome.entities) or "no entity"
    return _report.ok("one sentence", f"'{_SENTENCE}': {found}, in {took_ms:.1f} ms")


def _peak_bytes() -> int | None:
    """Peak resident memory of this process."""
    try:
        import resource  # noqa: PLC0415  POSIX only
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes there, kibibytes elsewhere
