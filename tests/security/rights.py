"""The five rights of a worker, given and taken away at the broker as an administrator does it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from security.secured import USER, Secured
from support.topics import Topics

_TIMEOUT_S = 20


@dataclass(frozen=True, slots=True)
class Right:
    """One of the five: an operation on a resource. `prefixed`: on all whose names begin so."""

    label: str
    operation: str
    kind: ResourceType
    resource: str
    prefixed: bool = False

    def binding(self) -> AclBinding:
        """The rule that gives it to `USER`."""
        pattern = ResourcePatternType.PREFIXED if self.prefixed else ResourcePatternType.LITERAL
        operation = AclOperation[self.operation]
        return AclBinding(self.kind, self.resource, pattern, f"User:{USER}", "*", operation, AclPermissionType.ALLOW)

    def filter(self) -> AclBindingFilter:
        """What finds that rule."""
        rule = self.binding()
        return AclBindingFilter(
            rule.restype, rule.name, rule.resource_pattern_type, rule.principal, rule.host, rule.operation,
            rule.permission_type,
        )  # fmt: skip


def five_rights(topics: Topics) -> Sequence[Right]:
    """What `deploy/rights.md` says that a worker needs, and nothing else."""
    return [
        Right("input", "READ", ResourceType.TOPIC, topics.input),
        Right("group", "READ", ResourceType.GROUP, topics.group),
        Right("output", "WRITE", ResourceType.TOPIC, topics.output),
        Right("dead letters", "WRITE", ResourceType.TOPIC, topics.dead_letters),
        Right("transactional id", "WRITE", ResourceType.TRANSACTIONAL_ID, f"{topics.group}/", prefixed=True),
    ]


def give(secured: Secured, rights: Iterable[Right]) -> None:
    """Allow them; returns when the broker has taken the rules over."""
    wanted = list(rights)
    for future in secured.admin.create_acls([right.binding() for right in wanted]).values():
        future.result(_TIMEOUT_S)
    for right in wanted:
        _wait_for(secured, right, rules=1)


def take(secured: Secured, right: Right) -> None:
    """Take one away; returns when the broker knows."""
    for future in secured.admin.delete_acls([right.filter()]).values():
        assert len(future.result(_TIMEOUT_S)) == 1, "it was there"
    _wait_for(secured, right, rules=0)


def _wait_for(secured: Secured, right: Right, *, rules: int) -> None:
    """The broker answers this question from the rules that it goes by."""
    while len(secured.admin.describe_acls(right.filter()).result(_TIMEOUT_S)) != rules:
        pass
