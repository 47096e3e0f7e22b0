"""Write the output topic into a search index: a consumer that needs only `confluent-kafka`, to copy and to change.

python deploy/python/index_consumer.py broker-1:9092 entities GROUP http://localhost:9200/articles/_bulk

`enricher index run` does more. This one reads plain JSON of keyed records, and ends at any error with nothing committed.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request

from confluent_kafka import Consumer, KafkaException, Message

DONE = {200, 409}
"""409: the index has something newer. A delete of nothing is done too: 404, without an error."""
LATER = {429, 500, 502, 503, 504}


def run(brokers: str, topic: str, group: str, bulk_url: str) -> None:
    """Write what is committed in the topic, for ever."""
    where = {"bootstrap.servers": brokers, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**where, "isolation.level": "read_committed", "enable.auto.commit": False})
    consumer.subscribe([topic])
    while True:
        messages = consumer.consume(500, 1.0)
        if errors := [error for message in messages if (error := message.error())]:
            raise KafkaException(errors[0])
        if messages:
            index([action(message) for message in messages], bulk_url)
            consumer.commit(asynchronous=False)  # only after the answer


def action(message: Message) -> str:
    """The lines of a bulk request for a record, or for a tombstone."""
    key, value = message.key(), message.value()
    header = dict(message.headers() or []).get("enricher.version")
    if key is None or header is None:
        raise SystemExit(f"no key or no version at offset {message.offset()}; nothing is committed")
    version = int(header)
    place = {"_id": key.decode(), "version": version, "version_type": "external_gte"}
    if value is None:
        return json.dumps({"delete": place}) + "\n"
    return json.dumps({"index": place}) + "\n" + json.dumps(json.loads(value)) + "\n"


def index(actions: list[str], bulk_url: str) -> None:
    """Send these until each is done; ends the program if the index refuses one."""
    pause_s = 0.5
    while actions:
        found = statuses(actions, bulk_url)
        if refused := set(found) - DONE - LATER:
            raise SystemExit(f"the index refuses actions with {refused}; nothing is committed")
        actions = [each for each, status in zip(actions, found, strict=True) if status in LATER]
        if actions:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 10)


def statuses(actions: list[str], bulk_url: str) -> list[int]:
    """The index's answer for each action."""
    body, kind = "".join(actions).encode(), {"Content-Type": "application/x-ndjson"}
    try:
        with urllib.request.urlopen(urllib.request.Request(bulk_url, body, kind), timeout=30) as answer:
            items = [item for found in json.load(answer)["items"] for item in found.values()]
            return [item["status"] if "error" in item else 200 for item in items]
    except urllib.error.HTTPError as error:
        return [error.code if error.code in LATER else 400] * len(actions)
    except OSError:
        return [503] * len(actions)  # no answer: it may be done, and is done once more


if __name__ == "__main__":
    run(*sys.argv[1:])
