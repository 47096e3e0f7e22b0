"""Says what is wrong with settings, in words: the name of the setting, where it was set, and never its value."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, get_args, get_origin

import orjson
from pydantic_core import ErrorDetails

from enricher.errors import SettingsError
from enricher.worker.settings.closest import Groups, did_you_mean, setting_names, variable_names
from enricher.worker.settings.files import (
    CONFIG_VARIABLE,
    DOTENV,
    PREFIX,
    config_file,
    dotenv,
    tables,
    variable_name,
    variables,
)
from enricher.worker.settings.tasks import NAME_RULE, TASKS, TaskSettings


def refuse_unknown_groups(groups: Groups) -> None:
    """Refuse names without a known group, which pydantic-settings ignores; it checks the names inside a group."""
    file = config_file()
    for table in tables(file) if file else ():
        if table not in groups:
            meant = did_you_mean(table, list(groups)) or f"; the tables are {', '.join(groups)}"
            message = f"{file}: there is no table '{table}'{meant}"
            raise SettingsError(message)
    in_file = dotenv()
    if CONFIG_VARIABLE in in_file and CONFIG_VARIABLE not in os.environ:
        raise SettingsError(f"{CONFIG_VARIABLE} has no effect in {DOTENV}: set it in the environment")
    for name in {*os.environ, *in_file}:
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
        meant = did_you_mean(name, variable_names(groups)) or f"; the names are {', '.join(known)}"
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
    return any(get_origin(each) in {dict, tuple} for each in (annotation, *get_args(annotation)))


def explain(problem: ErrorDetails, groups: Groups) -> str:
    """A mistake that pydantic found."""
    location = [str(part) for part in problem["loc"]]
    if location[:1] == [TASKS]:
        return _explained_task(location, problem)
    name = _name_of(location[0], location[1]) if len(location) > 1 else ".".join(location) or "settings"
    if location[1:2] == ["properties"] and len(location) > 2:
        return f'{name}: \'{location[2]}\' is neither text, a number, true or false, nor {{"file": "..."}}'
    known = variable_names(groups) if name.startswith(PREFIX) else setting_names(groups)
    return f"{name}: {_words_of(problem, '.'.join(location), known)}"


def explain_plainly(problem: ErrorDetails, groups: Groups) -> str:
    """A mistake in settings that a program gave, by the setting's name there."""
    location = [str(part) for part in problem["loc"]]
    if location[:1] == [TASKS] and len(location) > 2:
        return f"{'.'.join(location)}: {_words_of(problem, location[2], list(TaskSettings.model_fields))}"
    known = setting_names(groups) if len(location) > 1 else list(groups)
    return f"{'.'.join(location) or 'settings'}: {_words_of(problem, '.'.join(location), known)}"


def _words_of(problem: ErrorDetails, name: str, known: Sequence[str]) -> str:
    """Say what is wrong. `known`: what an unknown `name` may have been meant to be."""
    if problem["type"] == "extra_forbidden":
        return f"no such setting{did_you_mean(name, known)} (see 'enricher settings')"
    return problem["msg"].removeprefix("Value error, ")


def _name_of(group: str, field: str) -> str:
    """The name of a setting's variable; if its value comes from the TOML file, also the file and the name there."""
    variable = variable_name(group, field)
    if variable not in variables():
        file = config_file()
        table = tables(file).get(group) if file else None
        if isinstance(table, dict) and field in table:
            return f"{file}: {group}.{field} ({variable})"
    return variable


def _explained_task(location: Sequence[str], problem: ErrorDetails) -> str:
    """A mistake in tasks, with the task and the field."""
    if "[key]" in location:
        return f"{_named_task(location[:2])}: {NAME_RULE}"
    # A wrong item of a list is told by the name of the list.
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
    """The path of a setting of a task and the source that it comes from; for a missing field, that of the others."""
    variable, file = variable_name(TASKS), config_file()
    text = variables().get(variable)
    in_variable = {} if text is None else {TASKS: orjson.loads(text)}
    in_file = tables(file) if file else {}
    for known in (path, path[:-1]):
        if _holds(in_variable, known):
            return ": ".join([variable, *([".".join(path[1:])] if path[1:] else [])])
        if _holds(in_file, known):
            return f"{file}: {'.'.join(path)}"
    return ".".join(path)


def _holds(value: Any, path: Sequence[str]) -> bool:  # noqa: ANN401  any JSON
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
    return True
