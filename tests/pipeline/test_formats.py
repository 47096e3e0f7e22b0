"""Articles as other teams write them, through workers, a real broker and a real registry, and back.

Confluent's own serializers write them, and its deserializers read the records.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from support.mixed.layouts import FLAT, NESTED, PARAGRAPHS, Layout
from support.mixed.stage import OutputFormat, Stage
from support.patience import PATIENCE_S
from support.registry_proxy import RegistryProxy
from support.topics import QUICK_TO_START

from tools.kafka import Cluster
from tools.registry import Registry
from tools.waiting import wait_until

pytestmark = pytest.mark.broker

FORMS = 15
FRESH = "Avro, prefix, registered just before the outage"

Staged = Callable[..., Stage]


@pytest.fixture(scope="module")
def proxy(registry: Registry) -> Iterator[RegistryProxy]:
    """In front of the registry."""
    with RegistryProxy(registry.url) as opened:
        yield opened


@pytest.fixture(scope="module")
def staged(broker: Cluster, proxy: RegistryProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staged]:
    """Makes stages of layouts, which end with the last test."""
    with ExitStack() as opened:

        def stage(layout: Layout, output_format: OutputFormat = "json", *, stub: bool = True) -> Stage:
            made = Stage(
                layout,
                tmp_path_factory.mktemp("stage"),
                bootstrap_servers=broker.bootstrap_servers,
                registry_url=proxy.url,
                output_format=output_format,
                settings=QUICK_TO_START,
                stub=stub,
            )
            return opened.enter_context(made)

        yield stage


def assert_all_is_right(stage: Stage) -> None:
    """Every input has its one right record, no dead letter, and `enricher verify` agrees."""
    findings = stage.check()
    assert {} == findings.examples
    assert len(stage.publisher.places) == findings.records > 0
    assert findings.entities > 0
    code, said = stage.verify()
    assert 0 == code, said


@pytest.mark.parametrize(
    ("layout", "output_format"),
    [(FLAT, "json"), (NESTED, "avro"), (PARAGRAPHS, "protobuf"), (FLAT, "json-schema")],
    ids=lambda each: each.name if isinstance(each, Layout) else each,
)
def test_articles_in_every_form_are_enriched(staged: Staged, layout: Layout, output_format: OutputFormat) -> None:
    """Fifteen forms in one topic; equal texts have equal entities, at offsets that cut them out of the article."""
    stage = staged(layout, output_format, stub=output_format != "avro")  # one case with a real model
    stage.publish(2 * FORMS)
    assert 0 == stage.run_to_the_end(), stage.log.read_text("utf-8")
    assert_all_is_right(stage)


def test_a_worker_without_a_registry_works_for_the_schemas_it_knows(staged: Staged, proxy: RegistryProxy) -> None:
    """Ids and GUIDs that were fetched once are on its disk; articles of others wait, and go on with the registry."""
    stage = staged(NESTED)
    first = stage.start()
    stage.publish(FORMS)
    assert stage.wait_until_done(PATIENCE_S), stage.log.read_text("utf-8")
    first.terminate()
    assert 0 == first.wait(PATIENCE_S)
    stage.inputs.add(FRESH, stage.forms.fresh_avro(uuid.uuid4().hex))
    stage.inputs.prepare(FRESH)
    with proxy.down():
        second = stage.start()
        stage.publish(FORMS)
        assert stage.wait_until_done(PATIENCE_S), stage.log.read_text("utf-8")
        before = stage.log.read_text("utf-8")
        stage.publisher.send([stage.inputs.one(number, FRESH) for number in range(3)])
        # It says so once it has asked in vain, so this does not depend on how long anything takes.
        assert wait_until(lambda: "no answer about schema" in stage.log.read_text("utf-8")[len(before) :], PATIENCE_S)
        assert 3 == stage.backlog()
        assert 0 == stage.dead_letters()
    assert stage.wait_until_done(PATIENCE_S), stage.log.read_text("utf-8")
    assert second.poll() is None
    assert_all_is_right(stage)


def test_an_id_unknown_to_the_registry_is_a_dead_letter_that_names_it(staged: Staged) -> None:
    """The registry answers, so waiting would help nobody; other articles are enriched."""
    stage = staged(FLAT)
    known = [stage.inputs.one(number, "Avro, prefix") for number in range(3)]
    unknown = 2**31 - 1
    value = b"\0" + unknown.to_bytes(4, "big") + known[0].value[5:]
    stage.publisher.send([*known, known[0].with_value(value)])
    assert 0 == stage.run_to_the_end(), stage.log.read_text("utf-8")
    findings = stage.check()
    assert {"dead letters": 1, "lost": 1} == findings.counts
    assert f"id {unknown}" in findings.examples["dead letters"][0]
    assert len(known) == findings.records
