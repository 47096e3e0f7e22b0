"""The client against a real registry behind a proxy that goes wrong in every way: only an unknown id is an unknown id."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import httpx2
import pytest
from support.fault_proxy import Fault, FaultProxy, GuardedProxy
from support.patience import PATIENCE_S, retry

from enricher.worker.articles.schemas import SchemaRef
from enricher.worker.registry.registry_client import RegistryClient, RegistryUnavailable, UnknownToRegistry
from tools.registry import Registry

pytestmark = pytest.mark.broker

TEXT = '{"type":"record","name":"Article","fields":[{"name":"id","type":"string"}]}'
ANSWERS = {Fault.OTHER_SCHEMA, Fault.SLOW, Fault.DRIPS}
"""A schema that differs from what it was, and one that comes slowly, are answers of a registry all the same."""


@pytest.fixture
def known(registry: Registry) -> SchemaRef:
    """A schema that the registry has."""
    subject = f"known-{uuid.uuid4().hex[:8]}"
    answer = httpx2.post(f"{registry.url}/subjects/{subject}/versions", json={"schema": TEXT})
    return SchemaRef("id", str(answer.json()["id"]))


def client_of(
    proxy: FaultProxy, properties: Mapping[str, str] | None = None, *, timeout_s: float = PATIENCE_S
) -> RegistryClient:
    """The worker's client."""
    return RegistryClient(proxy.url, properties or {}, timeout_s=timeout_s, max_schema_bytes=100_000)


@pytest.mark.parametrize(
    "fault",
    [fault for fault in Fault if fault not in ANSWERS],
    ids=lambda fault: fault.name,
)
def test_whatever_goes_wrong_says_nothing_about_the_schema(
    registry_proxy: FaultProxy, known: SchemaRef, fault: Fault
) -> None:
    """Neither of one that is there nor of one that is not; and afterwards the same client is answered."""
    client = client_of(registry_proxy, timeout_s=1.0)
    for reference in (known, SchemaRef("id", "2147483647")):
        with registry_proxy.fault(fault), pytest.raises(RegistryUnavailable):
            client.schema(reference)
    retry(lambda: client.schema(known), RegistryUnavailable)
    assert TEXT == client.schema(known).text
    with pytest.raises(UnknownToRegistry) as caught:
        retry(lambda: client.schema(SchemaRef("id", "2147483647")), RegistryUnavailable)
    assert 40403 == caught.value.code


def test_a_slow_answer_is_an_answer_for_who_waits(registry_proxy: FaultProxy, known: SchemaRef) -> None:
    """And none for who does not."""
    patient = client_of(registry_proxy)
    with registry_proxy.fault(Fault.SLOW):
        with pytest.raises(RegistryUnavailable):
            client_of(registry_proxy, timeout_s=1.0).schema(known)
        assert TEXT == patient.schema(known).text


def test_credentials_are_sent_and_wrong_ones_are_an_outage(registry: Registry, known: SchemaRef) -> None:
    """Not an unknown schema: somebody will correct them."""
    with GuardedProxy(registry.url) as guarded:
        assert TEXT == client_of(guarded, {"basic.auth.user.info": "user:pass"}).schema(known).text
        for wrong in ({}, {"basic.auth.user.info": "user:other"}, {"bearer.auth.token": "dXNlcjpwYXNz"}):
            with pytest.raises(RegistryUnavailable) as caught:
                client_of(guarded, wrong).schema(known)
            assert 401 == caught.value.status
            assert "other" not in str(caught.value)
