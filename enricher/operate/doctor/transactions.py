"""`enricher doctor --transactions`: tries the promises of this broker that exactly-once depends on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import confluent_kafka

from enricher.distribution import installed_version
from enricher.errors import BrokerError
from enricher.operate.doctor.broker import UNREACHABLE, version_finding
from enricher.operate.doctor.findings import Finding, Reporter
from enricher.operate.topics.admin import Admin
from enricher.operate.trials.promises import Result
from enricher.operate.trials.running import Trials
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
    admin = Admin(config)
    try:
        cluster = admin.cluster()
    except BrokerError as error:
        yield _report.fail("broker", str(error), UNREACHABLE)
        return
    versions = admin.api_versions()
    facts |= {"brokers": cluster.brokers, "broker_api_versions": dict(sorted(versions.items()))}
    yield _report.ok("broker", f"{cluster.brokers} broker(s), cluster {cluster.id}")
    yield version_finding(versions)
    yield from _try(config)


def _try(config: KafkaConfig) -> Iterator[Finding]:
    """The promises, and whether anything was left undeleted."""
    check, prefix = "topics of the trials", Trials.prefix_of(config)
    rights = (
        f"The trials need CREATE, DELETE, READ and WRITE on topics that begin with '{prefix}', READ and DELETE on groups "
        f"with the same prefix, and WRITE on transactional ids that begin with '{config.transactional_id}-doctor-'."
    )
    trials: Trials | None = None
    try:
        trials = Trials(config)
        with trials:
            yield _report.ok(check, f"'{trials.topic}' was created; everything with this prefix is deleted at the end")
            yield from (finding_of(result, rights) for result in trials.results())
    except BrokerError as error:
        yield _report.fail(check, str(error), rights)
    if trials and trials.left_behind:
        yield _report.warn("clean-up", f"not deleted: {'; '.join(trials.left_behind)}", "Delete it by hand.")


def finding_of(result: Result, rights: str) -> Finding:
    """FAIL if exactly-once depends on a promise that does not hold or could not be tried, else a warning."""
    promise, outcome = result.promise, result.outcome
    complain = _report.fail if promise.needed else _report.warn
    match outcome.holds:
        case True:
            found = _report.ok(promise.name, outcome.seen)
        case False:
            advice = f"{promise.otherwise} {_NO}" if promise.needed else promise.otherwise
            found = complain(promise.name, f"does not hold: {outcome.seen}", advice)
        case None:
            advice = f"If a right is missing: {rights} Otherwise run it again, and report the result to us ({_PAGE})."
            found = complain(promise.name, f"could not be tried: {outcome.seen}", advice)
    return replace(found, took_s=round(result.took_s, 1))
