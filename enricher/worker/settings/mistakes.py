"""Explains mistakes in settings: names the setting and the place where it was set, but never quotes its value."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args, get_origin

import orjson
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from enricher.errors import SettingsError
from enricher.worker.settings.articles import DeleteEventMapping
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
from enricher.worker.settings.tasks import NAME_RULE, TASKS, TaskSettings

_OF_A_SERVICE = re.compile(
    rf"{PREFIX}(?:[A-Z0-9]+_)*?"
    r"(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9]+)*|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?|(?P<url>PORT))"
)
"""Names of the variables that a pod has for each Service: `ENRICHER_DEMO_SERVICE_HOST` for one called `enricher-demo`."""

Groups = Mapping[str, FieldInfo]
"""The groups of the settings by name."""

_LEAST_ALIKE = 0.8
"""The least ratio of difflib that counts. At its default of 0.6, `kafka.sasl_password` would mean `kafka.start`."""


def refuse_unknown_groups(groups: Groups) -> None:
    """Refuse names without a known group. pydantic-settings ignores them; it checks only the names inside a group."""
    file = config_file()
    for table in read_tables(file) if file else ():
        if table not in groups:
            meant = _did_you_mean(table, list(groups)) or f"; the tables are {', '.join(groups)}"
            message = f"{file}: there is no table '{table}'{meant}"
            raise SettingsError(message)
    in_file = dotenv()
    if CONFIG_VARIABLE in in_file and CONFIG_VARIABLE not in os.environ:
        raise SettingsError(f"{CONFIG_VARIABLE} has no effect in {DOTENV}: set it in the environment")
    # A port may be a Service's, or a mistake: `ENRICHER_HEALTH_PORT` for `ENRICHER_HEALTH__PORT`. Kubernetes gives it a URL.
    of_services = {
        name
        for name, value in os.environ.items()
        if (match := _OF_A_SERVICE.fullmatch(name)) and (not match["url"] or "://" in value)
    }
    for name in {*os.environ, *in_file} - (of_services - in_file.keys()):
        if name.upper().startswith(PREFIX) and name.upper() != CONFIG_VARIABLE:
            _refuse_unknown(name, groups)


def _refuse_unknown(name: str, groups: Groups) -> None:
    group, delimiter, _field = name[len(PREFIX) :].lower().partition("__")
    if group == TASKS:
        if delimiter:
            whole = variable_name(TASKS)
            raise SettingsError(f'{name}: tasks are one JSON object, {whole}={{"NAME": {{"source": "..."}}}}')
        return
    if group not in groups or not delimiter:
        known = [f"{variable_name(group)}{'' if group == TASKS else '__...'}" for group in groups]
        meant = _did_you_mean(name, _variable_names(groups)) or f"; the names are {', '.join(known)}"
        message = f"{name}: no such setting{meant} (see 'enricher settings')"
        raise SettingsError(message)


def malformed_json(groups: Groups) -> str:
    """The variables that are not valid JSON, with the reason; pydantic-settings names only their group."""
    found, environment = [], variables()
    for name in _json_variables(groups):
        value = environment.get(name)
        if value is not None:
            try:
                orjson.loads(value)
            except orjson.JSONDecodeError as error:
                found.append(f"{name}: not JSON: {error}")
    return "\n".join(found)


def _json_variables(groups: Groups) -> Sequence[str]:
    fields = [
        variable_name(group, field)
        for group, model in groups.items()
        for field, info in getattr(model.annotation, "model_fields", {}).items()
        if _is_json(info.annotation)
    ]
    return [*fields, variable_name(TASKS)]


def _is_json(annotation: object) -> bool:
    """Whether a setting is written as JSON: a table or a list, optional or not."""
    kinds = (annotation, *get_args(annotation))
    return DeleteEventMapping in kinds or any(get_origin(each) in {dict, tuple} for each in kinds)


def explain(problem: ErrorDetails, groups: Groups) -> str:
    """Explain a mistake that pydantic found."""
    location = [str(part) for part in problem["loc"]]
    if location[:1] == [TASKS]:
        return _explain_task(location, problem)
    name = _name_of(location[0], location[1]) if len(location) > 1 else ".".join(location) or "settings"
    if location[1:2] == ["properties"] and len(location) > 2:
        return f'{name}: \'{location[2]}\' is neither text, a number, true or false, nor {{"file": "..."}}'
    if location[1:2] == ["deleted"] and len(location) > 2:
        return f"{name}: {location[2]}: {_words_of(problem, location[2], list(DeleteEventMapping.model_fields))}"
    known = _variable_names(groups) if name.startswith(PREFIX) else _setting_names(groups)
    return f"{name}: {_words_of(problem, '.'.join(location), known)}"


def explain_plainly(problem: ErrorDetails, groups: Groups) -> str:
    """Explain a mistake in settings that a Python program gave, by their names there."""
    location = [str(part) for part in problem["loc"]]
    if location[:1] == [TASKS] and len(location) > 2:
        return f"{'.'.join(location)}: {_words_of(problem, location[2], list(TaskSettings.model_fields))}"
    known = _setting_names(groups) if len(location) > 1 else list(groups)
    return f"{'.'.join(location) or 'settings'}: {_words_of(problem, '.'.join(location), known)}"


def _words_of(problem: ErrorDetails, name: str, known: Sequence[str]) -> str:
    """The mistake in words. `known`: the names that an unknown `name` may stand for."""
    if problem["type"] == "extra_forbidden":
        return f"no such setting{_did_you_mean(name, known)} (see 'enricher settings')"
    return problem["msg"].removeprefix("Value error, ")


def _name_of(group: str, field: str) -> str:
    """The setting's variable; if the value comes from the TOML file, also the file and the name there."""
    variable = variable_name(group, field)
    if variable not in variables():
        file = config_file()
        table = read_tables(file).get(group) if file else None
        if isinstance(table, dict) and field in table:
            return f"{file}: {group}.{field} ({variable})"
    return variable


def _explain_task(location: Sequence[str], problem: ErrorDetails) -> str:
    """Explain a mistake in a task, with the names of task and field."""
    if "[key]" in location:
        return f"{_named_task(location[:2])}: {NAME_RULE}"
    # For a wrong item of a list, name the list.
    name = _named_task(location[:3])
    if problem["type"] in {"dict_type", "model_type"}:
        what = "an object of tasks" if len(location) == 1 else "an object of settings"
        return f"{name}: must be {what}, such as a task with a source"
    if problem["type"] == "string_pattern_mismatch":
        return f"{name}: language tags (BCP 47) are expected, such as en or en-GB"
    words = (
        "required"
        if problem["type"] == "missing"
        else _words_of(problem, location[-1], list(TaskSettings.model_fields))
    )
    return f"{name}: {words}"


def _named_task(path: Sequence[str]) -> str:
    """The name of a task's setting, with the variable or the file that sets it."""
    variable, file = variable_name(TASKS), config_file()
    text = variables().get(variable)
    in_variable = {} if text is None else {TASKS: orjson.loads(text)}
    in_file = read_tables(file) if file else {}
    # A field that is missing is set nowhere: then its task counts.
    for known in (path, path[:-1]):
        if _holds(in_variable, known):
            return f"{variable}: {'.'.join(path[1:])}" if path[1:] else variable
        if _holds(in_file, known):
            return f"{file}: {'.'.join(path)}"
    return ".".join(path)


def _holds(value: Any, path: Sequence[str]) -> bool:  # noqa: ANN401  any JSON
    """Whether nested objects have a value at this path."""
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
    return True


def _setting_names(groups: Groups) -> Sequence[str]:
    """Every setting as `group.field`, except those of tasks, which share one variable."""
    fields = {group: getattr(info.annotation, "model_fields", ()) for group, info in groups.items()}
    return [f"{group}.{field}" for group, names in fields.items() for field in names]


def _variable_names(groups: Groups) -> Sequence[str]:
    """The variable of each setting."""
    return [variable_name(*name.split(".")) for name in _setting_names(groups)]


def _did_you_mean(name: str, known: Sequence[str]) -> str:
    """`; did you mean X?`, if X has the same name in another group or almost the same name; else nothing."""
    wanted, by_text = _plain(name), {_plain(each): each for each in known}
    elsewhere = [text for text in by_text if text.rpartition(".")[2] == wanted.rpartition(".")[2]]
    found = elsewhere if len(elsewhere) == 1 else get_close_matches(wanted, by_text, n=1, cutoff=_LEAST_ALIKE)
    return f"; did you mean {by_text[found[0]]}?" if found else ""


def _plain(name: str) -> str:
    """A variable or a name in the TOML file as `group.field`."""
    return name.lower().removeprefix(PREFIX.lower()).replace("__", ".")
