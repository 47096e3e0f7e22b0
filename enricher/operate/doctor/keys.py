"""Whether publishers put each key into one partition of one input topic, by the newest records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from enricher.errors import BrokerError
from enricher.operate.doctor.findings import Finding, Reporter
from enricher.operate.inspect.inspector import Inspector
from enricher.operate.inspect.key_partitions import ADVICE, ONE_TOPIC, KeyPartitions, topics_by_key
from enricher.operate.trials.rights import newest_records
from enricher.worker.kafka.shared.client import KafkaConfig

_RECORDS = 2_000
_MIN_PER_PARTITION = 20
_MAX_BYTES = 16 * 2**20

_report = Reporter("broker")


def key_findings(configs: Sequence[KafkaConfig]) -> Iterator[Finding]:
    """Read the newest records of each input topic, 2,000 or 16 MiB of one, and tell where their keys are.

    `configs`: those of the clients, one for each input topic.
    """
    check = "one partition per key"
    topics: list[KeyPartitions] = []
    for config in configs:
        try:
            found = _newest_keys(config)
        except BrokerError as error:
            yield _report.warn(check, f"not read: {error}", "See the checks above.")
            continue
        topics.append(found)
        if found.in_several or found.from_crc32:
            yield _report.warn(check, f"{found}, among the newest records", ADVICE)
        else:
            yield _report.ok(check, f"holds for the {found.keys:,} keys of the newest records")
    if len(configs) > 1:
        yield _in_one_topic(topics_by_key(topics))


def _in_one_topic(topics: Mapping[int, int]) -> Finding:
    """`topics`: how many topics each key is in, by its digest."""
    check, keys = "one input topic per key", len(topics)
    if several := sum(count > 1 for count in topics.values()):
        seen = f"{several:,} of {keys:,} keys have records in several input topics, among the newest records"
        return _report.warn(check, seen, ONE_TOPIC)
    return _report.ok(check, f"holds for the {keys:,} keys of the newest records")


def _newest_keys(config: KafkaConfig) -> KeyPartitions:
    with closing(Inspector(config)) as inspector:
        partitions = len(inspector.partitions(config.input_topic))
    found, left_bytes = KeyPartitions(partitions), _MAX_BYTES
    with closing(
        newest_records(config, config.input_topic, max(_MIN_PER_PARTITION, _RECORDS // partitions))
    ) as records:
        for record in records:
            found.note(record.key, record.partition.number)
            left_bytes -= record.size_bytes
            if left_bytes < 0:
                break
    return found
