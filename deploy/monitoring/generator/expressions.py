"""The metrics and labels in a PromQL expression.

This is no parser: it removes everything that cannot be a metric's name. `promtool` checks the syntax.
"""

from __future__ import annotations

import re

_STRING = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")
_MATCHERS = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"\[[^\]]*\]")
_LABEL_LIST = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)")
_OFFSET = re.compile(r"\boffset\s+\w+")
_NAME = re.compile(r"(?<![\w:.])[a-zA-Z_:][\w:]*(?!\s*\(|[\w:])")
_WORDS = frozenset({"and", "or", "unless", "bool", "by", "without", "on", "ignoring", "group_left", "group_right"})
_MATCHER_LABEL = re.compile(r"([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)")


def metrics_of(expression: str) -> set[str]:
    """The names of all series that the expression reads."""
    bare = _STRING.sub("", expression)
    for pattern in (_MATCHERS, _RANGE, _LABEL_LIST, _OFFSET):
        bare = pattern.sub(" ", bare)
    return {name for name in _NAME.findall(bare) if name not in _WORDS and name not in {"inf", "nan"}}


def labels_of(expression: str) -> set[str]:
    """The names of all labels that the expression selects, groups or joins by."""
    bare = _STRING.sub("", expression)
    selected = {label for inside in _MATCHERS.findall(bare) for label in _MATCHER_LABEL.findall(inside)}
    listed = {
        label.strip() for _, inside in _LABEL_LIST.findall(_MATCHERS.sub("", bare)) for label in inside.split(",")
    }
    return {label for label in selected | listed if label}
