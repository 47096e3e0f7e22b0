"""The five rights that a worker needs, each tried or asked for; `enricher.operate.trials.rights` says how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from enricher.errors import BrokerError, EnricherError
from enricher.operate.doctor.findings import Finding, Reporter
from enricher.operate.lag.reading import resume_points
from enricher.operate.topics.admin import Admin
from enricher.operate.trials import rights
from enricher.worker.kafka.reading.resume_errors import HiddenOutputs
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.rights import Right, group_right, topic_rights
from enricher.worker.kafka.shared.topicwatch import TopicWatch

_report = Reporter("broker")


def rights_findings(config: KafkaConfig, partitions: Mapping[str, int], admin: Admin) -> Iterator[Finding]:
    """Check the rights as far as the topics exist; `partitions` has the number of each existing topic."""
    may_read: dict[str, bool] = {}
    for lane in config.inputs:
        if lane in partitions:
            read = list(_read_input(config.of_lane(lane)))
            yield from read
            may_read[lane] = read[0].verdict == "ok"
    yield from _transactions(config, partitions, may_read)
    for topic in (config.output_topic, config.dead_letter_topic):
        if topic in partitions:
            yield from _write(admin, topic, topic_rights(config)[topic])


def _transactions(
    config: KafkaConfig, partitions: Mapping[str, int], may_read: Mapping[str, bool]
) -> Iterator[Finding]:
    """The rights that only a transaction can try. `may_read`: whether each input topic that exists may be read."""
    doctor_id = rights.doctor_id(config)
    try:
        rights.try_transactional_id(config)
    except BrokerError as error:
        # Not `transactional_id_right`: what was tried is another id with the prefix, and the group's workers need it too.
        advice = f"Allow WRITE on transactional ids with the prefix '{config.transactional_prefix}'."
        yield _report.fail("right: transactional id WRITE", str(error), advice)
        return
    yield _report.ok(
        "right: transactional id WRITE",
        f"opened '{doctor_id}' (never the worker's own id: that would fence the worker)",
    )
    for lane, allowed in may_read.items():
        yield from _commit(config.of_lane(lane), partitions, may_read=allowed)


def _read_input(config: KafkaConfig) -> Iterator[Finding]:
    check = f"right: {config.input_topic} READ"
    try:
        sample = rights.read_newest(config, config.input_topic)
    except BrokerError as error:
        yield _report.fail(check, str(error), f"Allow {topic_rights(config)[config.input_topic]}.")
        return
    yield _report.ok(check, f"every partition answered; the newest {sample.records} records were read")
    if sample.without_key:
        seen = f"{sample.without_key} of the newest {sample.records} records have no key"
        yield _report.warn("keys of articles", seen, "Without a key there is no order per article, and no compaction.")


def _commit(config: KafkaConfig, partitions: Mapping[str, int], *, may_read: bool) -> Iterator[Finding]:
    check = f"right: group {config.group_id} READ"
    if not may_read:
        seen = "not tried: sending offsets of the input topic needs READ on that topic too"
        yield _report.warn(check, seen, f"Allow {topic_rights(config)[config.input_topic]} first.")
        return

    missing: list[int] = []
    try:
        count = partitions[config.input_topic]
        group = rights.committed_offsets(config, config.input_topic, count)
        committed = group.by_partition
        # Partitions that were added since begin at their beginning.
        begun = count if group.began_with is None else min(count, group.began_with)
        missing = [number for number in range(begun) if number not in committed]
        rights.try_commit(config, config.input_topic, committed)
    except EnricherError as error:
        yield _report.fail(check, str(error), f"Allow {group_right(config)}.")
    else:
        seen = f"an offset was sent and aborted; '{config.group_id}' has committed on {len(committed)} of {count}"
        yield _report.ok(check, seen)
    outputs = {config.output_topic, config.dead_letter_topic}
    if missing and config.start == "resume" and outputs <= partitions.keys():
        yield _resume(config, missing)


def _resume(config: KafkaConfig, missing: Sequence[int]) -> Finding:
    """Offsets at which a worker starts in partitions without a committed one: after their newest outputs, if any."""
    check, of = "start without offsets", f"{len(missing)} partitions have no committed offset"
    try:
        found = resume_points(config, TopicWatch(config), missing)
    except HiddenOutputs as hidden:
        advice = "A worker waits for its end. If it stays open: kafka-transactions find-hanging, then abort."
        return _report.warn(check, f"{of}: {hidden}", advice)
    except EnricherError as error:
        advice = "A worker would not start. Set kafka.start, or provide what is missing."
        return _report.fail(check, f"{of}: {error}", advice)
    if not found:
        return _report.ok(check, f"{of} and none has outputs: a worker starts at the beginning")
    where = ", ".join(f"{number} at {offset}" for number, offset in sorted(found.items()))
    advice = "Offsets expire offsets.retention.minutes after the last member left. kafka.start=beginning starts over."
    return _report.warn(check, f"{of}: a worker resumes after their newest outputs (partition {where})", advice)


def _write(admin: Admin, topic: str, right: Right) -> Iterator[Finding]:
    """Asks instead of writing: consumers that do not read `read_committed` would see even an aborted record."""
    check, advice = f"right: {topic} WRITE", f"Allow {right}."
    try:
        allowed = admin.allowed_operations(topic)
    except BrokerError as error:
        yield _report.fail(check, str(error), advice)
        return
    if allowed is None:
        seen = "unknown: the broker does not report it, and no record is written to find out"
        yield _report.warn(
            check, seen, "'enricher doctor --transactions' writes, to topics that it creates and deletes."
        )
    elif right.is_missing(allowed):
        yield _report.fail(check, f"the broker would refuse it: it allows {', '.join(sorted(allowed))}", advice)
    else:
        yield _report.ok(check, "the broker would allow it; no record was written")
