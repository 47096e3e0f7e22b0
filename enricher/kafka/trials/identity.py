"""How a topic is told from another one that was given the same name later."""

from __future__ import annotations

from enricher.kafka.trials.clients import CALL_S, Clients
from enricher.kafka.trials.promise import Outcome


def topic_made_again(clients: Clients) -> Outcome:
    """Create a topic, delete it, create it again, and compare the ids."""
    name = f"{clients.place.group}.again"
    clients.topics.create(name, 1)
    first = clients.topics.id_of(name)
    clients.topics.delete(name)
    clients.topics.create(name, 1)
    # A broker that has not heard of the change yet gives the old id.
    clients.wait(lambda: clients.topics.id_of(name) != first, CALL_S if first else 0)
    second = clients.topics.id_of(name)
    clients.topics.delete(name)
    if first is None or second is None:
        return Outcome(holds=False, seen="the broker gives topics no ids, as Kafka did before 2.8")
    return Outcome(first != second, f"its id was {first}, and {second} after it was deleted and created again")
