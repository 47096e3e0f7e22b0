"""`enricher doctor --transactions`: tries the promises of this broker that exactly-once depends on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import confluent_kafka

from enricher.distribution import installed_version
from enricher.errors import BrokerError
from enricher.operate.doctor.broker import UNREACHABLE, version_finding
from enricher.operate.doctor.findings import Finding, Reporter
from enricher.operate.trials.running import Result, Trials
from enricher.worker.kafka.shared.client import KafkaConfig

_report = Reporter("broker")
_PAGE = "deploy/brokers.md"
_NO = f"Do not run a worker on this broker, and report to us which broker it is ({_PAGE})."


def tried_promises(config: KafkaConfig, facts: dict[str, object]) -> Iterator[Finding]:
    """Yield each finding as soon as it is known. Raises SettingsError. A caller that stops early must close the iterator.

    Adds versions to `facts`, for the report.
    """
    client = {"confluent-kafka": confluent_kafka.__version__, "librdkafka": confluent_kafka.libversion()[0]}
    facts |= {"enricher": installed_version(), "client": client}
    trials, check, prefix = Trials(config), "topics of the trials", Trials.prefix_of(config)
    try:
        cluster = trials.cluster()
    except BrokerError as error:
        yield _report.fail("broker", str(error), UNREACHABLE)
        return
    versions = trials.api_versions()
    facts |= {"brokers": cluster.brokers, "broker_api_versions": dict(sorted(versions.items()))}
    yield _report.ok("broker", f"{cluster.brokers} broker(s), cluster {cluster.id}")
    yield version_finding(versions)
    rights = (
        f"The trials need CREATE, DELETE, READ and WRITE on topics that begin with '{prefix}', READ on groups with the same "
        f"prefix, and WRITE on transactional ids that begin with '{config.transactional_id}-doctor-'."
    )
    try:
        with trials:
            yield _report.ok(check, f"'{trials.name}' was created, and is deleted at the end")
            yield from (finding_of(result, rights) for result in trials.results())
    except BrokerError as error:
        yield _report.fail(check, str(error), rights)
        return
    if trials.left_behind:
        yield _report.warn("clean-up", f"not deleted: {trials.left_behind}", "Delete it by hand.")


def finding_of(result: Result, rights: str) -> Finding:
    """FAIL if a promise does not hold or could not be tried."""
    promise, outcome = result.promise, result.outcome
    if outcome.holds:
        found = _report.ok(promise.name, outcome.seen)
    elif outcome.holds is None:
        advice = f"If a right is missing: {rights} Otherwise run it again, and report the result to us ({_PAGE})."
        found = _report.fail(promise.name, f"could not be tried: {outcome.seen}", advice)
    else:
        found = _report.fail(promise.name, f"does not hold: {outcome.seen}", f"{promise.otherwise} {_NO}")
    return replace(found, took_s=round(result.took_s, 1))
