"""Checks the models: loads the models of all tasks as a worker does, says how they run, and enriches one sentence."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from enricher.errors import InvalidArticle, ModelError, SettingsError
from enricher.operate.doctor.findings import Finding, Reporter
from enricher.worker.articles import encode_record
from enricher.worker.heads import Head
from enricher.worker.inference.device.hardware import cuda_problem
from enricher.worker.inference.run.selection import lost_without_report, missing_reports
from enricher.worker.records import Article, Batch, EnrichedRecord, Partition, RawRecord, Ticket
from enricher.worker.rules.assembly import store_answers
from enricher.worker.settings import Settings
from enricher.worker.wiring.formats import keep_function
from enricher.worker.wiring.loaded_tasks import Model, Tasks, load_tasks, window_cutter

_SENTENCE = "Angela Merkel spoke to the United Nations in Berlin."
_GPU = Path("/dev/nvidia0")

_report = Reporter("model")


def model_findings(settings: Settings) -> Iterator[Finding]:
    """Load the models of all tasks, warm them up and run them on one sentence."""
    began_s = time.monotonic()
    try:
        tasks = load_tasks(settings)
    except ModelError as error:
        whose = "[tasks] and" if settings.tasks else "model.source,"
        yield _report.fail("model", str(error), f"See {whose} model.device and model.precision in 'enricher settings'.")
        return
    except SettingsError as error:
        yield _unsuitable(settings, error)
        return
    seconds = time.monotonic() - began_s
    yield _report.ok("model", _load(tasks, seconds))
    yield _device(settings, tasks.model)
    yield _precision(tasks)
    try:
        yield _sentence(tasks)
    except SettingsError as error:
        yield _unsuitable(settings, error)


def _unsuitable(settings: Settings, error: SettingsError) -> Finding:
    """The finding for settings of windows or tasks that do not fit the models, which shows only once these are loaded."""
    if settings.tasks:
        return Reporter("settings").fail("tasks", str(error), "See [tasks] and batching in 'enricher settings'.")
    return Reporter("settings").fail("windows", str(error), "See the batching settings in 'enricher settings'.")


def _load(tasks: Tasks, seconds: float) -> str:
    """The models, each with the name of its task if the settings name tasks."""
    models = ", ".join(
        f"{f'{card.name}: ' if card.named else ''}{card.model.name} ({card.model.digest[:19]})" for card in tasks.cards
    )
    return f"{models}, loaded and warm after {seconds:.1f} s"


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


def _precision(tasks: Tasks) -> Finding:
    """The variant and the reason for it; a warning if a faster variant lacks only its gate report."""
    prepared, wanted, check = tasks.model.prepared, tasks.settings.model, "precision"
    faster = "".join(f"; not {name}: {why}" for name, why in prepared.rejected)
    seen = (
        f"{prepared.card.precision} ({prepared.variant.name}; precision {wanted.precision}: {prepared.reason}){faster}"
    )
    if wanted.precision != "auto" or prepared.variant.reduced:
        return _report.ok(check, seen)
    if missing := missing_reports(prepared.checkpoints, prepared.device, wanted.cache_dir):
        advice = (
            f"A faster precision would run here but lacks a report. {lost_without_report(prepared.device)} To make it: "
        )
        return _report.warn(check, seen, f"{advice}{'; '.join(missing)}")
    return _report.ok(check, seen)


def _sentence(tasks: Tasks) -> Finding:
    """The findings of all heads in one article, whatever its language."""
    model, heads = tasks.model, [replace(head, languages=None) for head in tasks.heads]
    article = Article("doctor", "", _SENTENCE)
    ticket = Ticket(RawRecord(Partition("", 0), 0, None, None), 0.0, article=article)
    tokens = model.tokenizer.tokenize([article])[0]
    if isinstance(tokens, Exception):
        return _report.fail("one sentence", str(tokens), "The tokenizer does not fit the model.")
    windows = window_cutter(tasks.settings, model).cut(ticket, tokens, 0.0)
    began_s = time.monotonic()
    keep = keep_function(tasks.settings, catalogue=tasks.catalogue)
    with redirect_stdout(sys.stderr):  # a transform may print
        store_answers(model.engine.run(Batch(tuple(windows))), heads, keep)
    took_ms = 1000 * (time.monotonic() - began_s)
    if not isinstance(ticket.outcome, EnrichedRecord):
        return _report.fail(
            "one sentence", f"{ticket.outcome}", "The model does not run on this device, or output.transform fails."
        )
    try:
        document = orjson.loads(encode_record(ticket.outcome))
    except InvalidArticle as error:
        return _report.fail("one sentence", str(error), "What the model finds cannot be written.")
    found = "; ".join(f"{head.task.name}: {head.text_of(_listed(document, head))}" for head in heads)
    return _report.ok("one sentence", f"'{_SENTENCE}': {found}, in {took_ms:.1f} ms")


def _listed(document: Mapping[str, Any], head: Head) -> list[Mapping[str, Any]]:
    """The findings of a head in a record. Entities name their task only if several tasks find entities."""
    return [each for each in document[head.listed_in] if each.get("task", head.task.name) == head.task.name]
