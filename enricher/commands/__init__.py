"""The commands: which there are and where. One module each, or a folder; `console`, `signals`, `progress` are shared.

A command raises `FatalError`; `enricher.cli` turns it into a message and an exit code. Nothing is imported here, because
`enricher --help` reads this module alone.
"""

from pathlib import Path

COMMANDS = {
    "enricher": {
        "run": "run.command:run",
        "enrich": "enrich:enrich",
        "publish": "publish.command:publish",
        "tail": "tail.command:tail",
        "labels": "labels:labels",
        "verify": "verify:verify",
        "lag": "lag:lag",
        "scaler": "scaler:scaler",
        "doctor": "doctor.command:doctor",
        "settings": "settings:show_settings",
    },
    "topics": {"create": "topics:topics_create"},
    "schemas": {
        "register": "schemas.register:schemas_register",
        "check": "schemas.check:schemas_check",
    },
    "model": {
        "prepare": "model.prepare:model_prepare",
        "check": "model.check:model_check",
        "inspect": "model.inspect:model_inspect",
        "tune": "model.tune:model_tune",
    },
}
"""Every command by its group, as `module:function` in this package."""


def help_of(target: str) -> str:
    """The first paragraph of a command's docstring, read without importing the command."""
    module, _, function = target.partition(":")
    source = Path(__file__).parent.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8")
    docstring = source.partition(f"\ndef {function}(")[2].split('"""')[1]
    return " ".join(docstring.partition("\n\n")[0].split())
