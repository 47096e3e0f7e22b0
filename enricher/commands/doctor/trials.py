"""The five rights that a worker needs, tried out or asked for one by one; `enricher.kafka.rights` says how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from enricher.commands.doctor.findings import Finding, Voice
from enricher.errors import BrokerError, EnricherError
from enricher.kafka import rights
from enricher.kafka.admin import Admin
from enricher.kafka.client import KafkaConfig
from enricher.scaling.reading import ResumePoints

_say = Voice("broker")


def rights_findings(config: KafkaConfig, partitions: Mapping[str, int], admin: Admin) -> Iterator[Finding]:
    """Try what can be tried with the topics that exist; `partitions` counts theirs."""
    read = list(_read_input(config)) if config.input_topic in partitions else []
    yield from read
    yield from _transactions(config, partitions, may_read=read[0].verdict == "ok" if read else None)
    for topic in (config.output_topic, config.dead_letter_topic):
        if topic in partitions:
            yield from _write(admin, topic)


def _transactions(config: KafkaConfig, partitions: Mapping[str, int], *, may_read: bool | None) -> Iterator[Finding]:
    """The rights that only a transaction can try. `may_read`: the input topic; None where there is none."""
    doctor_id = rights.doctor_id(config)
    try:
        rights.try_transactional_id(config)
    except BrokerError as error:
        advice = f"Allow WRITE on transactional ids with the prefix '{config.transactional_prefix}'."
        yield _say.fail("right: transactional id WRITE", str(error), advice)
        return
    yield _say.ok(
        "right: transactional id WRITE", f"opened '{doctor_id}' (never the worker's own id, which would fence it)"
    )
    if may_read is not None:
        yield from _commit(config, partitions, may_read=may_read)


def _read_input(config: KafkaConfig) -> Iterator[Finding]:
    check = f"right: {config.input_topic} READ"
    try:
        sample = rights.read_newest(config, config.input_topic)
    except BrokerError as error:
        yield _say.fail(check, str(error), f"Allow READ on the topic '{config.input_topic}'.")
        return
    yield _say.ok(check, f"every partition answered; {sample.records} of the newest records were looked at")
    if sample.without_key:
        seen = f"{sample.without_key} of the newest {sample.records} records have none"
        yield _say.warn("keys of articles", seen, "Without a key there is no order per article, and no compaction.")


def _commit(config: KafkaConfig, partitions: Mapping[str, int], *, may_read: bool) -> Iterator[Finding]:
    check = f"right: group {config.group_id} READ"
    if not may_read:
        seen = "not tried: to send offsets of the input topic needs READ on that, too"
        yield _say.warn(check, seen, f"Allow READ on the topic '{config.input_topic}' first.")
        return

    missing: list[int] = []

    def trial() -> str:
        count = partitions[config.input_topic]
        committed = rights.committed_offsets(config, config.input_topic, count)
        missing.extend(number for number in range(count) if number not in committed)
        rights.try_commit(config, config.input_topic, committed)
        return f"an offset was sent and taken back; '{config.group_id}' has committed on {len(committed)} of {count}"

    yield from _say.tried(check, trial, f"Allow READ on the group '{config.group_id}'.")
    outputs = {config.output_topic, config.dead_letter_topic}
    if missing and config.start == "resume" and outputs <= partitions.keys():
        yield _resume(config, missing)


def _resume(config: KafkaConfig, missing: Sequence[int]) -> Finding:
    """Where a worker begins in partitions without a committed offset: behind their outputs, if these can tell."""
    check, of = "start without offsets", f"{len(missing)} partitions have no committed offset"
    try:
        found = ResumePoints(config).look(missing)
    except EnricherError as error:
        advice = "A worker would not start. Say where to begin with kafka.start, or give what is missing."
        return _say.fail(check, f"{of}: {error}", advice)
    if not found:
        return _say.ok(check, f"{of} and none has outputs: a worker begins at the beginning")
    where = ", ".join(f"{number} at {offset}" for number, offset in sorted(found.items()))
    advice = (
        "Offsets expire offsets.retention.minutes after a group's last member left. kafka.start=beginning begins again."
    )
    return _say.warn(check, f"{of}: a worker resumes behind their newest outputs (partition {where})", advice)


def _write(admin: Admin, topic: str) -> Iterator[Finding]:
    """Asked for and not tried: an aborted record would be read by every consumer that is not `read_committed`."""
    check, advice = f"right: {topic} WRITE", f"Allow WRITE on the topic '{topic}'."
    try:
        allowed = admin.allowed_operations(topic)
    except BrokerError as error:
        yield _say.fail(check, str(error), advice)
        return
    if allowed is None:
        seen = "the broker does not tell, and nothing is written to find out"
        yield _say.warn(check, seen, "'enricher doctor --transactions' writes, to topics that it creates and deletes.")
    elif "WRITE" in allowed:
        yield _say.ok(check, "the broker says that it would allow it; no record was written")
    else:
        yield _say.fail(check, f"the broker would refuse it: it allows {', '.join(sorted(allowed))}", advice)
