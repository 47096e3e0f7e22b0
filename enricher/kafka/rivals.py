"""Tells whether a live process of our name has fenced our producer.

A late InitProducerId of our own and a transaction that the broker timed out fence a producer just as a newer process
does, and the client gives one error for all three (`border`). So the consumer group is asked: every worker is a member of
it, and its client id holds its instance name. Each worker notes, before it joins itself, which members have its name
already. Those are older: dead, or fenced by our start. All others are newer, and the work is theirs. Two live processes
never both take the other one for the older, so they do not fence each other in turns.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping

from confluent_kafka.admin import AdminClient

from enricher.errors import Fenced, TransactionTrouble
from enricher.kafka.client import KafkaConfig, LastWord
from enricher.kafka.errors import border, constructing
from enricher.runtime.wakeup import StopEvent

log = logging.getLogger(__name__)

LOOK_S = 5.0
"""How long to look for a newer process: it fences us first and joins the group a moment later, after 0.1 s where nothing
else runs. Half of the shortest `kafka.max_poll_interval_s`, since nobody polls meanwhile."""
_AGAIN_S = 0.25
_ASK_S = 2.0  # the coordinator answers in milliseconds, or is away


class Rivals:
    """Looks for other members of our group with our name.

    `member_id`: what the group calls us now, empty for no member. `past_ids`: what it has called us, as it grows: a member
    that was thrown out gets a new id, and the old one may stay in the group for a session timeout.
    """

    def __init__(
        self,
        config: KafkaConfig,
        member_id: Callable[[], str],
        past_ids: Collection[str] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._name = str(config.consumer()["client.id"])
        self._member_id = member_id
        self._clock = clock
        self._last_word = LastWord(config)
        self._older: frozenset[str] | None = None
        self._past_ids = past_ids

    def begin(self) -> None:
        """Note who has our name already: a predecessor whose session has not ended yet, or a live one that we fence."""
        if self._older is not None:
            return
        try:
            self._older = frozenset(self._members())
        except TransactionTrouble as trouble:
            # Then all count as newer, and being fenced ends this process rather than another one.
            log.info("cannot see who else has this worker's name: %s", trouble)
            return
        if self._older:
            log.warning("members of the group with this worker's name, dead or fenced now: %s", ", ".join(self._older))

    def settle(self, since_s: float, stopping: StopEvent) -> None:
        """Return when our producer was fenced, at `since_s` by the clock, by no live newer process.

        That takes `LOOK_S` in all. Raises Fenced and TransactionTrouble.
        """
        give_up_s = self._clock() + LOOK_S + self._config.request_timeout_s
        while True:
            newer = self._newer()
            looked = self._clock() >= since_s + LOOK_S
            # Two that started together take each other for newer. Where both are fenced, by a late request, the one with
            # the smaller id leaves at once, and the other one sees it.
            if newer and (looked or self._member_id() < min(newer)):
                raise Fenced(self._rival(newer))
            if newer is not None and not newer and looked:
                log.warning(
                    "no newer process has this worker's name: it was fenced by a late request of its own, or by the "
                    "broker, which timed its transaction out; going on with a new producer"
                )
                return
            if self._clock() >= give_up_s:
                message = "fenced, and the group does not say whether another process has this worker's name"
                raise TransactionTrouble(message)
            if stopping.wait(_AGAIN_S):
                message = "fenced, and asked to stop"
                raise TransactionTrouble(message)

    def _newer(self) -> Mapping[str, str] | None:
        """The hosts of newer members, by member id; None where the answer tells nothing."""
        own = self._member_id()
        try:
            found = self._members()
        except TransactionTrouble as trouble:
            log.info("%s", trouble)
            return None
        if own and own not in found:
            return (
                None  # a coordinator that is still loading, or has not heard of us: it may not know the others either
            )
        older = self._older or frozenset()
        return {member: host for member, host in found.items() if member not in {own, *self._past_ids, *older}}

    def _members(self) -> Mapping[str, str]:
        """Members of the group with our name, and their hosts. Raises TransactionTrouble and BrokerError."""
        with constructing():
            properties = self._config.client("admin") | {"error_cb": self._last_word}
            client = AdminClient(properties, logger=self._last_word.logger)
        group = self._config.group_id
        with border(f"asking for the members of the group '{group}'", self._last_word, client):
            # Not the newer requests, which can end the process: see enricher/kafka/inspect/inspector.py.
            groups = client.list_groups(group, timeout=_ASK_S)
        members = [member for found in groups if found.id == group for member in found.members]
        return {str(member.id): str(member.client_host) for member in members if member.client_id == self._name}

    def _rival(self, newer: Mapping[str, str]) -> str:
        where = ", ".join(f"{member} at {host.lstrip('/')}" for member, host in sorted(newer.items()))
        return (
            f"fenced: in the group '{self._config.group_id}' a newer process has the name '{self._config.instance}': "
            f"{where}. Give each worker its own kafka.instance"
        )
