"""The commands: which there are and where. One module each, or a folder; `console`, `signals`, `progress` are shared.

A command raises `FatalError`; `enricher.cli` turns it into a message and an exit code. Nothing is imported here, because
`enricher --help` reads this table alone.
"""

from typing import NamedTuple


class Command(NamedTuple):
    """Where a command's function is, as `module:function`, and the first paragraph of its docstring."""

    target: str
    summary: str


COMMANDS = {
    "enricher": {
        "run": Command(
            "enricher.commands.run.command:run",
            "Read articles from Kafka, enrich them, write the records and commit, exactly once.",
        ),
        "enrich": Command(
            "enricher.commands.enrich:enrich",
            "Enrich a file of articles without Kafka: for a first try, and for debugging one article.",
        ),
        "publish": Command(
            "enricher.commands.publish.command:publish",
            "Publish articles to the input topic, with the article's id as key.",
        ),
        "tail": Command(
            "enricher.commands.tail.command:tail",
            "Show enriched records as they appear, with the entities in their sentences. Ctrl-C ends it.",
        ),
        "verify": Command(
            "enricher.commands.verify:verify",
            "Check that every committed input is exactly once in the output or the dead letters. Only reads.",
        ),
        "lag": Command(
            "enricher.commands.lag:lag",
            "Show how far the group is behind, and the age of the oldest unprocessed record. Only reads.",
        ),
        "scaler": Command(
            "enricher.commands.scaler:scaler",
            "Tell KEDA how many workers to run, from the age of the oldest unprocessed record. Runs until SIGTERM.",
        ),
        "doctor": Command(
            "enricher.commands.doctor.command:doctor",
            "Check whether a worker can run here: settings, broker, topics, rights, model, device. Changes nothing.",
        ),
        "settings": Command(
            "enricher.commands.settings:show_settings",
            "Show every setting: its variable, type and unit, default, value in force and reason. Secrets are masked.",
        ),
    },
    "topics": {
        "create": Command(
            "enricher.commands.topics:topics_create",
            "Create the input, output and dead-letter topics. Existing ones are left alone; differences are shown.",
        ),
    },
    "model": {
        "prepare": Command(
            "enricher.commands.model.prepare:model_prepare",
            "Make a self-contained folder of a model: files, graph, gate report, digests. A worker runs it by its path.",
        ),
        "check": Command(
            "enricher.commands.model.check:model_check",
            "Measure what a reduced precision loses against fp32, and write the report. Exit code 0 passed, 3 failed.",
        ),
        "inspect": Command(
            "enricher.commands.model.inspect:model_inspect",
            "Show a model: family, sizes, labels, digest, which precisions this machine runs, and their gate reports.",
        ),
        "tune": Command(
            "enricher.commands.model.tune:model_tune",
            "Measure throughput and batch time over batch size, window length and concurrency; recommend settings.",
        ),
    },
}
"""Every command by its group. A test compares the summaries with the docstrings."""
