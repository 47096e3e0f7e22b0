"""The list of commands: their groups, and where each is.

A command raises `FatalError`; `enricher.cli` turns it into a message and an exit code. Nothing is imported here, because
`enricher --help` reads this module alone.
"""

from pathlib import Path
from typing import NamedTuple


class Group(NamedTuple):
    """A group of commands: its help, and each command by its name, as `module:function` in the package."""

    help: str
    commands: dict[str, str]


GROUPS = {
    "enricher": Group(
        """Articles in, entities out, exactly once: from Kafka to Kafka, with the model in the same process.

    Settings come from ENRICHER_... variables or enricher.toml (or the file that --config or ENRICHER_CONFIG
    names); `enricher settings` lists them.""",
        {
            "run": "worker.commands.run:run",
            "enrich": "worker.commands.enrich:enrich",
            "publish": "operate.publish:publish",
            "tail": "operate.tail:tail",
            "verify": "operate.verify.command:verify",
            "lag": "operate.lag:lag",
            "replay": "operate.replay:replay",
            "doctor": "operate.doctor.command:doctor",
            "settings": "worker.commands.settings:show_settings",
        },
    ),
    "offsets": Group(
        "Say where a consumer group goes on, while it has no members.",
        {
            "set": "operate.offset_commands:offsets_set",
            "skip": "operate.offset_commands:offsets_skip",
        },
    ),
    "topics": Group("Create the topics that a worker needs.", {"create": "operate.topics:topics_create"}),
    "dead-letters": Group(
        "Count dead letters, show one, send them back to the input topic exactly once, go on after a limit of them.",
        {
            "list": "operate.dead_letters.command:dead_letters_list",
            "show": "operate.dead_letters.command:dead_letters_show",
            "redrive": "operate.dead_letters.command:dead_letters_redrive",
            "accept": "operate.dead_letters.command:dead_letters_accept",
        },
    ),
    "index": Group(
        "Write the records into OpenSearch or Elasticsearch, and check that the index is right.",
        {
            "run": "indexing.index_run:index_run",
            "template": "indexing.index_template:print_index_template",
            "verify": "indexing.index_verify:verify_against_topic",
        },
    ),
    "schemas": Group(
        "Register the schema of records, or ask whether the registry would accept it.",
        {"register": "operate.schemas:schemas_register"},
    ),
    "catalogue": Group(
        "Check a catalogue of names with ids, and try it on articles.",
        {
            "check": "operate.catalogue_commands:catalogue_check",
            "try": "operate.catalogue_commands:catalogue_try",
        },
    ),
    "model": Group(
        "Prepare, check, evaluate, compare, inspect and tune models.",
        {
            "prepare": "workshop.prepare:model_prepare",
            "check": "workshop.check:model_check",
            "evaluate": "workshop.evaluate:model_evaluate",
            "compare": "workshop.compare:model_compare",
            "inspect": "workshop.inspect:model_inspect",
            "tune": "workshop.tune:model_tune",
        },
    ),
}
"""All groups. The commands of the group `enricher` are called without a group's name. A command is added by its line."""


def help_of(target: str) -> str:
    """The first paragraph of a command's docstring, read without importing the command."""
    module, _, function = target.partition(":")
    source = Path(__file__).parent.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8")
    docstring = source.partition(f"\ndef {function}(")[2].split('"""')[1]
    return unwrap(docstring.partition("\n\n")[0])


def unwrap(docstring: str) -> str:
    """Join the lines of each paragraph, because help would keep their ends in a narrow terminal."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in docstring.split("\n\n"))
