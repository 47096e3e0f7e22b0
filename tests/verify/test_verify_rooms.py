"""What the verifier decides without a broker."""

from __future__ import annotations

from enricher.codec import record_id as worker_record_id
from enricher.records import Partition
from enricher.verify import Checks, OffsetWatch
from enricher.verify.headers import record_id, source_of_dead_letter, source_of_record
from enricher.verify.inputs import Doubts, Limits, Verdict
from enricher.verify.ledger import PartitionLedger, mark_of
from enricher.verify.order import ByKey, ByPartition
from enricher.verify.payload import alike, chosen_of, parsed


def filled(ledger: PartitionLedger, outputs: range, inputs: range) -> PartitionLedger:
    """A ledger that has seen these."""
    for offset in outputs:
        ledger.note_output(offset, mark_of(b"k"), tombstone=False, dead_letter=False, shortened=False)
    for offset in inputs:
        ledger.note_input(offset, b"k", b"v")
    return ledger


def test_the_record_id_is_that_of_the_contract() -> None:
    """Written twice, on purpose; the two must agree."""
    assert worker_record_id(Partition("articles", 3), 17) == record_id("articles", 3, 17)


def test_only_what_is_due_is_lost_and_only_what_is_committed_is_invented() -> None:
    """Inputs from the due offset on may still be under way, and so may outputs from the committed one on."""
    checks = Checks()
    ledger = filled(PartitionLedger(100, 200), outputs=range(105, 150), inputs=range(100, 140))
    Verdict(checks, "in", Doubts()).judge(0, ledger, Limits(due=103, committed=145, begins=100, outputs_begin=0))
    assert [100, 101, 102] == [place.offset for place in checks.lost.examples]
    assert [140, 141, 142, 143, 144] == [place.offset for place in checks.invented.examples]
    assert [145, 146, 147, 148, 149] == [place.offset for place in checks.published_ahead.examples]


def test_what_retention_may_have_deleted_is_unknown_and_not_lost() -> None:
    """Below the oldest output that is left nobody can tell; above it a missing output is lost."""
    checks = Checks()
    ledger = filled(PartitionLedger(0, 20), outputs=range(5, 20), inputs=range(20))
    verdict = Verdict(checks, "in", Doubts())
    verdict.judge(0, ledger, Limits(due=20, committed=20, begins=0, outputs_begin=5))
    assert ("unknown", 5) == (checks.lost.state, verdict.excused)
    lossy = filled(PartitionLedger(0, 20), outputs=range(5, 19), inputs=range(20))
    verdict.judge(1, lossy, Limits(due=20, committed=20, begins=0, outputs_begin=5))
    assert ("failed", [19]) == (checks.lost.state, [place.offset for place in checks.lost.examples])


def test_with_a_reason_for_doubt_nothing_missing_is_a_violation() -> None:
    """Compaction removes inputs and outputs by right."""
    checks = Checks()
    ledger = filled(PartitionLedger(0, 9), outputs=range(5), inputs=range(1, 9))
    doubts = Doubts(missing_outputs="compacted", missing_inputs="compacted")
    Verdict(checks, "in", doubts).judge(0, ledger, Limits(due=9, committed=9, begins=0, outputs_begin=0))
    assert ("unknown", "unknown", 0) == (checks.lost.state, checks.invented.state, checks.lost.failed)


def test_inputs_that_retention_has_deleted_make_no_output_invented() -> None:
    """Below the beginning of the input there is nothing to compare with."""
    checks = Checks()
    ledger = filled(PartitionLedger(0, 9), outputs=range(9), inputs=range(4, 9))
    Verdict(checks, "in", Doubts()).judge(0, ledger, Limits(due=9, committed=9, begins=4, outputs_begin=0))
    assert "ok" == checks.invented.state


def test_at_most_ten_places_are_kept() -> None:
    """All are counted."""
    checks = Checks()
    ledger = filled(PartitionLedger(0, 500), outputs=range(0), inputs=range(500))
    Verdict(checks, "in", Doubts()).judge(0, ledger, Limits(due=500, committed=500, begins=0, outputs_begin=0))
    assert (500, 10) == (checks.lost.failed, len(checks.lost.examples))


def test_copies_are_counted_without_overflow() -> None:
    """Ten outputs of one input: nine times there was one before."""
    ledger = PartitionLedger(0, 1)
    seen = [ledger.note_output(0, 1, tombstone=False, dead_letter=True, shortened=False) for _ in range(10)]
    assert [False] + [True] * 9 == seen


def test_keys_and_dead_letters_are_compared_by_their_marks() -> None:
    """No key is not an empty key; of a dead letter the value counts too, unless it says that it was left out."""
    assert len({mark_of(None), mark_of(b""), mark_of(b"a"), mark_of(b"a", b""), mark_of(b"a", b"b")}) == 5
    ledger = PartitionLedger(0, 2)
    for offset, shortened in enumerate((False, True)):
        ledger.note_output(offset, mark_of(b"k", b"v"), tombstone=False, dead_letter=True, shortened=shortened)
    differences = [ledger.note_input(offset, b"k", b"w") for offset in range(2)]
    assert [True, False] == [difference is not None and difference.content for difference in differences]


def test_order_by_key_never_invents_a_violation_when_its_table_is_too_small() -> None:
    """With one slot for all keys it forgets, and says how often."""
    tiny, roomy = ByKey(slots=1), ByKey(slots=2**20)  # hashes differ from run to run: in 64 slots two meet now and then
    outputs = [(b"a", 5), (b"b", 1), (b"a", 6), (b"b", 2), (None, 0)]
    for order in (tiny, roomy):
        assert all(order.keeps(("out", 0), (0, offset), key) for key, offset in outputs)
    assert 3 == tiny.forgotten
    assert not roomy.keeps(("out", 0), (0, 4), b"a")
    assert roomy.keeps(("out", 1), (0, 4), b"a")


def test_order_by_partition_looks_at_each_input_partition_by_itself() -> None:
    """Two inputs that share an output partition have no order between them."""
    order = ByPartition()
    assert all(order.keeps(("out", 0), source, None) for source in ((0, 5), (1, 1), (0, 6), (1, 2)))
    assert not order.keeps(("out", 0), (0, 3), None)


def test_committed_offsets_that_go_back_or_away_are_noted() -> None:
    """From none to some is the beginning; from some to none is a way back."""
    check = Checks().went_back
    watch = OffsetWatch("in", check)
    for sample in ({0: None, 1: 4}, {0: 2, 1: 4}, {0: 2, 1: 3}, {0: None, 1: 3}):
        watch.note(sample)
    assert [(1, 3), (0, 0)] == [(place.partition, place.offset) for place in check.examples]
    assert (4, 5) == (watch.samples, check.checked)


def test_headers_that_the_schema_refuses_name_no_source() -> None:
    """Decimal without leading zeros, an id, a version, and a content type where there is content."""
    good = {
        "enricher.source.topic": b"in", "enricher.source.partition": b"0", "enricher.source.offset": b"12",
        "enricher.record.id": b"x", "enricher.schema.version": b"1", "content-type": b"application/json",
    }  # fmt: skip
    found = source_of_record(good, tombstone=False)
    assert found is not None
    assert ("in", 0, 12, "x") == (found.topic, found.partition, found.offset, found.record_id)
    for name, value in (("source.offset", b"+1"), ("source.offset", b"9" * 5000), ("source.topic", b""),
                        ("record.id", None), ("schema.version", b"2")):  # fmt: skip
        assert source_of_record(good | {f"enricher.{name}": value}, tombstone=False) is None
    assert source_of_record(good, tombstone=True) is None
    assert source_of_dead_letter(good) is None


def test_records_are_alike_up_to_their_scores() -> None:
    """Places and labels to the letter, scores nearly; anything else that differs is a difference."""
    entity = {"field": "body", "start": 0, "end": 3, "text": "abc", "label": "X", "score": 0.5}
    record = {"id": "a", "entities": [entity]}
    assert alike(record, {"id": "a", "entities": [entity | {"score": 0.5011}]})
    for other in (entity | {"score": 0.51}, entity | {"label": "Y"}, entity | {"end": 4}):
        assert not alike(record, {"id": "a", "entities": [other]})
    assert not alike(record, {"id": "a", "entities": []})
    assert not alike(record, {"id": "b", "entities": [entity]})
    assert parsed(b"[]") is None is parsed(b"{")


def test_a_sample_is_as_large_as_asked_for() -> None:
    """Without doubles, and all of them where there are no more."""
    chosen = chosen_of(1_000, 20)
    assert chosen is not None
    assert 20 == sum(number in chosen for number in range(1_000))
    assert chosen_of(5, 20) is None
