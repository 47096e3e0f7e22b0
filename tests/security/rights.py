"""The five rights of a worker, granted and revoked at the broker by an administrator."""

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
from support.patience import PATIENCE_S, wait_until
from support.topics import Topics


@dataclass(frozen=True, slots=True)
class Right:
    """One right: an operation on a resource. `prefixed`: on all resources whose names begin with `name`."""

    label: str
    operation: str
    kind: ResourceType
    resource: str
    prefixed: bool = False

    def binding(self) -> AclBinding:
        """The ACL that grants it to `USER`."""
        pattern = ResourcePatternType.PREFIXED if self.prefixed else ResourcePatternType.LITERAL
        operation = AclOperation[self.operation]
        return AclBinding(self.kind, self.resource, pattern, f"User:{USER}", "*", operation, AclPermissionType.ALLOW)

    def filter(self) -> AclBindingFilter:
        """The filter that matches this ACL."""
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
    """Grant rights; returns once the broker applies them."""
    wanted = list(rights)
    for future in secured.admin.create_acls([right.binding() for right in wanted]).values():
        future.result(PATIENCE_S)
    for right in wanted:
        _wait_for(secured, right, rules=1)


def take(secured: Secured, right: Right) -> None:
    """Revoke a right; returns once the broker applies it."""
    for future in secured.admin.delete_acls([right.filter()]).values():
        assert len(future.result(PATIENCE_S)) == 1, "it was there"
    _wait_for(secured, right, rules=0)


def _wait_for(secured: Secured, right: Right, *, rules: int) -> None:
    """Wait until the broker applies so many ACLs."""

    def applies() -> bool:
        return len(secured.admin.describe_acls(right.filter()).result(PATIENCE_S)) == rules

    wait_until(applies, PATIENCE_S, f"{rules} rules for {right}", 0.01)
