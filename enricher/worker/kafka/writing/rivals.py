"""Finds out whether a newer live process with the same instance name has fenced our producer.

A late InitProducerId of this process and a transaction that the broker timed out fence a producer just as a newer process
does, and the client reports one error for all three (`errors`). So the consumer group is asked: every worker is a member,
and its client id holds its instance name. Before a worker joins, it notes which members have its name already. Those are
older: dead, or fenced by this start. All others are newer, and this process must stop. Two live processes never take each
other for the older one, so they do not fence each other in turns.

A worker that publishes nothing does not notice that it was fenced. So an idle one asks as well, once in each generation of
the group: a newer process joins the group after it has fenced.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping

from confluent_kafka.admin import AdminClient

from enricher.errors import Fenced, TransactionTrouble
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.client_errors import ClientErrors, new_client
from enricher.worker.kafka.shared.errors import mapping_errors
from enricher.worker.runtime.deadlines import Deadline
from enricher.worker.runtime.wakeup import StopEvent

log = logging.getLogger(__name__)

LOOK_S = 5.0
"""How long to look for a newer process, which fences first and joins the group later, after 0.1 s on an idle machine. Half
of the shortest `kafka.max_poll_interval_s`, since the consumer is not polled meanwhile."""
_PAUSE_S = 0.25
_IDLE_PAUSE_S = 1.0
_UNKNOWN_PAUSE_S = 30.0
"""The pause before an idle worker asks again, if its question had no answer."""
_REQUEST_S = 2.0  # a coordinator that is up answers in milliseconds


class Rivals:
    """Looks for other members of the group with the same instance name.

    `member_id`: this worker's member id now, empty if it is not a member. `past_ids`: its ids so far, a growing collection:
    after an expulsion a member gets a new id, and the old one may stay in the group for a session timeout. `generation`: the
    group's, None while it is unknown.
    """

    def __init__(
        self,
        config: KafkaConfig,
        member_id: Callable[[], str],
        past_ids: Collection[str] = (),
        *,
        generation: Callable[[], int | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._name = str(config.consumer()["client.id"])
        self._member_id = member_id
        self._clock = clock
        self._client_errors = ClientErrors(config)
        self._older: frozenset[str] | None = None
        self._past_ids = past_ids
        self._generation = generation
        self._cleared: int | None = None
        """The generation in which an idle worker has found no newer process."""
        self._suspects: Mapping[str, float] = {}
        """Newer members, and since when an idle worker has seen them."""
        self._next_look_s = -math.inf

    def begin(self) -> None:
        """Note the members with our name: a predecessor whose session has not ended yet, or a live one that we fence."""
        if self._older is not None:
            return
        try:
            self._older = frozenset(self._members())
        except TransactionTrouble as trouble:
            # Then all others count as newer, and being fenced ends this process instead of another one.
            log.info("cannot list members with this worker's name: %s", trouble)
            return
        if self._older:
            log.warning("the group has members with this worker's name, dead or fenced now: %s", ", ".join(self._older))

    def rule_out(self, since_s: float, stopping: StopEvent) -> None:
        """Return if no live newer process fenced our producer, at `since_s` by the clock.

        That takes `LOOK_S` altogether. Raises Fenced and TransactionTrouble.
        """
        deadline = Deadline(LOOK_S + self._config.request_timeout_s, self._clock)
        while True:
            newer = self._newer()
            looked = self._clock() >= since_s + LOOK_S
            # Two processes that started together take each other for newer. If a late request fences both, the one with
            # the smaller id leaves at once, and the other one sees that.
            if newer and (looked or self._member_id() < min(newer)):
                raise Fenced(self._rival(newer))
            if newer is not None and not newer and looked:
                log.warning(
                    "no newer process has this worker's name: it was fenced by its own late request, or by the "
                    "broker, which timed its transaction out; continuing with a new producer"
                )
                return
            if deadline.over:
                message = "fenced, and it is unknown whether another process has this worker's name"
                raise TransactionTrouble(message)
            if stopping.wait(_PAUSE_S):
                message = "fenced, and this worker was asked to stop"
                raise TransactionTrouble(message)

    def look(self) -> None:
        """While the worker is idle: look for a newer process when the group has changed. Blocks for one request.

        Raises Fenced if a newer member stays for longer than a session timeout: by then the group has expelled dead ones, a
        former member of this very process among them.
        """
        now_s = self._clock()
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + _IDLE_PAUSE_S
        generation = self._generation()
        if generation in {None, self._cleared}:
            return
        newer = self._newer()
        if newer is None:
            self._next_look_s = now_s + _UNKNOWN_PAUSE_S
            return
        self._suspects = {member: self._suspects.get(member, now_s) for member in newer}
        if not newer:
            self._cleared = generation
            return
        self._next_look_s = now_s + LOOK_S
        patience_s = self._config.session_timeout_s + LOOK_S
        if self._member_id() > min(newer):
            patience_s += 2 * LOOK_S  # of two that take each other for newer, the one with the smaller id leaves
        if now_s - min(self._suspects.values()) >= patience_s:
            raise Fenced(self._rival(newer))

    def _newer(self) -> Mapping[str, str] | None:
        """The hosts of newer members, by member id; None if the answer is of no use."""
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
        """Members of the group with our name, and their hosts. Raises TransactionTrouble, BrokerError."""
        client = new_client(AdminClient, self._config.client("admin"), self._client_errors)
        group = self._config.group_id
        with mapping_errors(f"asking for the members of the group '{group}'", self._client_errors, client):
            # Not the newer requests, which may not time out: see COORDINATOR_LIMIT_S.
            groups = client.list_groups(group, timeout=_REQUEST_S)
        members = [member for found in groups if found.id == group for member in found.members]
        return {str(member.id): str(member.client_host) for member in members if member.client_id == self._name}

    def _rival(self, newer: Mapping[str, str]) -> str:
        where = ", ".join(f"{member} at {host.lstrip('/')}" for member, host in sorted(newer.items()))
        return (
            f"fenced: in the group '{self._config.group_id}' a newer process has the name '{self._config.instance}': "
            f"{where}. Give each worker its own kafka.instance"
        )
