"""Names the setting of each mistake as it was written, with pydantic's words for the mistake; never quotes a value."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import reduce
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from enricher.errors import SettingsError
from enricher.worker.settings.files import (
    CONFIG_VARIABLE,
    DOTENV,
    PREFIX,
    config_file,
    dotenv,
    read_tables,
    variable_name,
    variables,
)
from enricher.worker.settings.tasks import TASKS

_OF_A_SERVICE = re.compile(
    rf"{PREFIX}(?:[A-Z0-9]+_)*?"
    r"(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9]+)*|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?|(?P<url>PORT))"
)
"""Names of the variables that a pod has for each Service: `ENRICHER_DEMO_SERVICE_HOST` for one called `enricher-demo`."""

Groups = Mapping[str, FieldInfo]
"""The groups of the settings by name."""

_LEAST_ALIKE = 0.8
"""The least ratio of difflib that counts. Its default of 0.6 finds names that mean something else."""


def refuse_unknown_groups(groups: Groups) -> None:
    """Refuse names without a known group. pydantic-settings ignores them; it checks only the names inside a group."""
    file, in_file = config_file(), dotenv()
    for table in read_tables(file) if file else ():
        if table not in groups:
            raise SettingsError(f"{file}: {table}: {_unknown(table, groups)}")
    if CONFIG_VARIABLE in in_file and CONFIG_VARIABLE not in os.environ:
        raise SettingsError(f"{CONFIG_VARIABLE} has no effect in {DOTENV}: set it in the environment")
    # A port may be a Service's, or a mistake: `ENRICHER_HEALTH_PORT` for `ENRICHER_HEALTH__PORT`. Kubernetes gives it a URL.
    of_services = {
        name
        for name, value in os.environ.items()
        if (match := _OF_A_SERVICE.fullmatch(name)) and (not match["url"] or "://" in value)
    }
    for name in {*os.environ, *in_file} - (of_services - in_file.keys()):
        group, delimiter, _field = name.lower().removeprefix(PREFIX.lower()).partition("__")
        known = bool(delimiter) != (group == TASKS) and group in groups
        if name.upper().startswith(PREFIX) and name.upper() != CONFIG_VARIABLE and not known:
            raise SettingsError(f"{name}: {_unknown(name, groups)}")


def malformed_json(cause: BaseException | None) -> str:
    """The variable whose value is not JSON, with the reason; pydantic-settings names only its group."""
    if not isinstance(cause, json.JSONDecodeError):
        return ""
    names = [name for name, value in variables().items() if value == cause.doc and name.startswith(PREFIX)]
    return f"{' or '.join(names)}: not JSON: {cause}"


def in_words(error: ValidationError, groups: Groups, named: Callable[[Sequence[str]], str]) -> str:
    """A line for each wrong setting. `named`: how whoever wrote it names a path such as `("kafka", "group_id")`."""
    lines: dict[str, str] = {}
    for problem in error.errors(include_url=False, include_input=False):
        # The fourth part is a type of a union, or lies within a value.
        name = named([str(part) for part in problem["loc"][:3]])
        unknown = problem["type"] == "extra_forbidden"
        words = _unknown(name, groups) if unknown else problem["msg"].removeprefix("Value error, ")
        lines.setdefault(name, f"{name}: {words}")
    return "\n".join(lines.values())


def python_name(path: Sequence[str]) -> str:
    """The name of a setting in a Python program."""
    return ".".join(path) or "settings"


def written_name(path: Sequence[str]) -> str:
    """The name of a setting as its variable, or as the TOML file and the name there; both where either may be meant."""
    whole = 1 if path[:1] == [TASKS] else 2  # all tasks are one variable
    if len(path) < whole:
        return python_name(path)
    variable, rest, file = variable_name(*path[:whole]), path[whole:], config_file()
    in_environment = variable in variables()
    names = [": ".join([variable, ".".join(rest)]) if rest else variable] if in_environment else []
    # A field that is missing is set nowhere: then the table counts that lacks it.
    if file and (_holds(tables := read_tables(file), path) or (not in_environment and _holds(tables, path[:-1]))):
        names.append(f"{file}: {python_name(path)}")
    return " or ".join(names if rest else names[:1]) or variable


def _holds(tables: Any, path: Sequence[str]) -> bool:  # noqa: ANN401  any TOML
    return reduce(lambda at, name: at.get(name) if isinstance(at, dict) else None, path, tables) is not None


def _unknown(name: str, groups: Groups) -> str:
    """The words for a name that no setting has, with the nearest one if it is almost the same."""
    known = [*groups, *(f"{group}.{field}" for group, info in groups.items() for field in _fields_of(info))]
    plain = name.rpartition(": ")[2].lower().removeprefix(PREFIX.lower()).replace("__", ".")
    meant = "".join(get_close_matches(plain, known, n=1, cutoff=_LEAST_ALIKE))
    if meant and name.upper().startswith(PREFIX):
        meant = variable_name(*meant.split("."))
    return f"no such setting{meant and f'; did you mean {meant}?'} (see 'enricher settings', or deploy/upgrading.md)"


def _fields_of(group: FieldInfo) -> Collection[str]:
    """The names of a group's settings; none for tasks, which are named by users."""
    return getattr(group.annotation, "model_fields", ())
