"""The schema registry: whether it answers, and has the schema of records. Registers nothing.

A worker would wait for it; here a check fails, because waiting enriches nothing. Schemas of articles: `articles`.
"""

from __future__ import annotations

from collections.abc import Iterator

from enricher.operate.doctor.findings import Finding, Reporter
from enricher.worker.articles import record_writer
from enricher.worker.registry.registry_client import RefusedByRegistry, RegistryUnavailable
from enricher.worker.settings import Settings
from enricher.worker.wiring.formats import registry_client, subject_of

_ADVICE = (
    "Are registry.url, with its path, and output.subject right, and is the registry up? Credentials are in "
    "registry.properties: basic.auth.user.info or bearer.auth.token, of a user with the right to read schemas."
)

_report = Reporter("registry")


def registry_findings(settings: Settings) -> Iterator[Finding]:
    """All checks of the registry; none without one. Raises SettingsError."""
    if not settings.registry.url:
        return
    client, subject = registry_client(settings), subject_of(settings)
    schema = record_writer(settings.output.format).schema
    try:
        yield _report.ok("registry", f"{client.name} answers; subjects: {len(client.subjects())}")
        if schema is None:
            return
        found = client.lookup(subject, schema)
    except (RegistryUnavailable, RefusedByRegistry) as error:
        yield _report.fail("registry", str(error), _ADVICE)
        return
    check, missing = f"subject {subject}", "the schema of records is not there"
    if found is not None:
        yield _report.ok(check, f"has the schema of records: version {found.version}, id {found.id}")
    else:
        advice = "Run 'enricher schemas register'; with --dry-run first, to see what it would do."
        yield _report.fail(check, f"{missing}: a worker would not start", advice)
