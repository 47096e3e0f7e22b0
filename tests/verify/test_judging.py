"""What the verifier decides without a broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition
from support.offset_watch import OffsetWatch

from enricher.operate.verify.contract import (
    NO_DELETION,
    DeleteEvents,
    Deletion,
    Omitted,
    Source,
    record_id,
    same_topic,
    source_of_dead_letter,
    source_of_record,
)
from enricher.operate.verify.ledger import Checks, Doubts, Judge, JudgedRange, PartitionLedger, mark_of
from enricher.operate.verify.outputs import SourceOrder, VersionOrder, belongs_to
from enricher.operate.verify.recomputing import alike, chosen_of
from enricher.operate.verify.verification import (
    CommittedOffset,
    committed_of,
    of_topic,
    topic_id_in,
)
from enricher.worker.articles import record_headers
from enricher.worker.records import Mark, Partition, RawRecord, record_version
from enricher.worker.rules.commit_metadata import CommitMetadata

VERSION = 17 << 12
TOPIC_ID, OTHER_ID = "kz7-Q2mNTXS0b_1d0wY3sA", "9KcV2hYVQnCmO2yN8uV4Qg"


def filled(ledger: PartitionLedger, outputs: range, inputs: range) -> PartitionLedger:
    """The ledger, after these outputs and inputs were noted."""
    for offset in outputs:
        ledger.note_record(offset, b"k", tombstone=False)
    for offset in inputs:
        ledger.note_input(offset, b"k", b"v")
    return ledger


COMPACTED = Doubts(missing_outputs="compacted", missing_inputs="compacted")


@pytest.mark.parametrize(
    ("outputs", "inputs", "judged", "doubts", "lost", "invented", "ahead"),
    [
        # Inputs from the due offset on may still be in process, and so may outputs from the committed offset on.
        ((5, 50), (0, 40), (3, 45, 0, 0), Doubts(), [0, 1, 2], range(40, 45), range(45, 50)),
        # Below the oldest output that is left it is unknown what retention has deleted; above it, it is lost.
        ((5, 20), (0, 20), (20, 20, 0, 5), Doubts(), "retention has deleted the oldest outputs", [], []),
        ((5, 19), (0, 20), (20, 20, 0, 5), Doubts(), [19], [], []),
        # Compaction legitimately removes inputs and outputs.
        ((0, 5), (1, 9), (9, 9, 0, 0), COMPACTED, "compacted", "compacted", []),
        # Before the first input that retention has left, there is nothing to compare with.
        ((0, 9), (4, 9), (9, 9, 4, 0), Doubts(), [], [], []),
    ],
)
def test_what_has_no_counterpart_is_judged_by_what_must_have_one(
    outputs: tuple[int, int],
    inputs: tuple[int, int],
    judged: tuple[int, int, int, int],
    doubts: Doubts,
    lost: Sequence[int] | str,
    invented: Sequence[int] | str,
    ahead: Sequence[int],
) -> None:
    """A text is a doubt: then nothing is a violation."""
    checks = Checks()
    Judge(checks, "in", doubts).judge(
        0, filled(PartitionLedger(0, 50), range(*outputs), range(*inputs)), JudgedRange(*judged)
    )
    for check, expected in ((checks.lost, lost), (checks.invented, invented), (checks.published_ahead, ahead)):
        if isinstance(expected, str):
            assert ("unknown", expected, 0) == (check.state, check.doubt, check.failed)
        else:
            assert [*expected] == [place.offset for place in check.examples]


def test_at_most_ten_places_are_kept() -> None:
    """All violations are counted."""
    checks = Checks()
    ledger = filled(PartitionLedger(0, 500), outputs=range(0), inputs=range(500))
    Judge(checks, "in", Doubts()).judge(0, ledger, JudgedRange(due=500, committed=500, begins=0, outputs_begin=0))
    assert (500, 10) == (checks.lost.failed, len(checks.lost.examples))


def test_copies_are_counted_without_overflow() -> None:
    """Of ten outputs of one input, nine have a predecessor."""
    ledger = PartitionLedger(0, 1)
    seen = [ledger.note_dead_letter(0, b"k", b"v", Omitted()) for _ in range(10)]
    assert [False] + [True] * 9 == seen


def test_marks_tell_no_key_from_an_empty_one_and_keys_from_values() -> None:
    """Keys and dead letters are compared by them."""
    assert len({mark_of(None), mark_of(b""), mark_of(b"a"), mark_of(b"a", b""), mark_of(b"a", b"b")}) == 5


VALUE, BOTH = Omitted(value_bytes=5), Omitted(value_bytes=5, key_bytes=1)


@pytest.mark.parametrize(
    ("letter", "omitted", "source", "is_right"),
    [
        ((b"k", b"v"), Omitted(), (b"k", b"v"), True),
        ((b"k", b"v"), Omitted(), (b"k", b"w"), False),
        ((b"k", b"v"), Omitted(), (b"l", b"v"), False),
        ((b"k", None), VALUE, (b"k", b"12345"), True),
        ((b"k", None), VALUE, (b"k", b"1234"), False),
        ((b"k", None), VALUE, (b"l", b"12345"), False),
        ((b"k", b"other"), VALUE, (b"k", b"12345"), False),
        ((None, None), BOTH, (b"k", b"12345"), True),
        ((None, None), BOTH, (b"kk", b"12345"), False),
        ((b"l", None), BOTH, (b"k", b"12345"), False),
        ((None, None), Omitted(unreadable=True), (b"k", b"12345"), True),
    ],
)
def test_a_dead_letter_has_the_key_and_value_of_its_input(
    letter: tuple[bytes | None, bytes | None], omitted: Omitted, source: tuple[bytes, bytes], *, is_right: bool
) -> None:
    """Of what it leaves out the size is compared; what is there counts, though it was declared as left out."""
    ledger = PartitionLedger(0, 1)
    ledger.note_dead_letter(0, *letter, omitted)
    found = ledger.note_input(0, *source)
    assert is_right == (found is None or not found.content)


DELETES = Deletion(deletes=True, key=b"7")
UNKNOWN = Deletion(deletes=None)


@pytest.mark.parametrize(
    ("key", "output_key", "deletion", "tombstone", "differences"),
    [
        (b"k", b"k", DELETES, True, ()),
        (b"k", b"k", DELETES, False, ("tombstone",)),
        (b"k", b"k", NO_DELETION, True, ("tombstone",)),
        (b"k", b"k", UNKNOWN, True, ()),
        (b"k", b"k", UNKNOWN, False, ()),
        (b"k", b"7", DELETES, True, ("content",)),
        (None, b"7", DELETES, True, ()),
        (None, b"8", DELETES, True, ("content",)),
        (None, b"8", Deletion(deletes=True), True, ()),
        (None, b"8", UNKNOWN, True, ()),
        (None, b"8", UNKNOWN, False, ("content",)),
    ],
)
def test_a_delete_event_becomes_a_tombstone_with_its_key_or_id(
    key: bytes | None,
    output_key: bytes,
    deletion: Deletion,
    differences: tuple[str, ...],
    *,
    tombstone: bool,
) -> None:
    """What cannot be read may be either; the id counts only where the input has no key."""
    ledger = PartitionLedger(0, 1)
    ledger.note_record(0, output_key, tombstone=tombstone)
    found = ledger.note_input(0, key, b"v", deletion)
    assert found is not None
    assert {"tombstone": "tombstone" in differences, "content": "content" in differences} == {
        "tombstone": found.tombstone,
        "content": found.content,
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"op": "d", "a~b": [{"id": "x"}]}', Deletion(deletes=True, key=b"x")),
        (b'\0\0\0\0\7{"op": "d", "a~b": [{"id": 7}]}', DELETES),
        (b'\xef\xbb\xbf{"op": "d", "a~b": [{"id": true}]}', Deletion(deletes=True, key=b"true")),
        (b'{"op": "d", "a~b": []}', Deletion(deletes=True)),
        (b'{"op": 1, "a~b": {"0": {"id": "x"}}}', Deletion(deletes=True, key=b"x")),
        (b'{"op": true}', NO_DELETION),
        (b'{"op": "c"}', NO_DELETION),
        (None, NO_DELETION),
        (b"\0\0\0\0\7\2\x0eOslo", UNKNOWN),
        (b'["d"]', UNKNOWN),
    ],
)
def test_delete_events_are_recognised_in_json(value: bytes | None, expected: Deletion) -> None:
    """Plain and framed; the verifier has its own eyes for it."""
    assert expected == DeleteEvents("/op", ["d", 1], "/a~0b/0/id").deletion(value)


def test_each_input_partition_has_an_order_of_its_own() -> None:
    """Two input partitions that share an output partition have no order between them."""
    order = SourceOrder()
    assert all(order.keeps(("out", 0), *source) for source in ((0, 5), (1, 1), (0, 6), (1, 2), (0, 6)))
    assert not order.keeps(("out", 0), 0, 3)
    assert order.keeps(("out", 1), 0, 3)


def test_committed_offsets_that_go_back_or_away_are_noted() -> None:
    """From no offset to one is the beginning; from one to none is going back."""
    watch = OffsetWatch("in")
    check = watch.check
    for first, second in ((None, 4), (2, 4), (2, 3), (None, 3)):
        watch.note({0: None if first is None else CommittedOffset(first), 1: CommittedOffset(second)})
    watch.finish(None)
    assert [(1, 3), (0, 0)] == [(place.partition, place.offset) for place in check.examples]
    assert 5 == check.checked


def test_offsets_of_a_topic_that_was_made_again_may_begin_at_its_beginning() -> None:
    """They name another topic id, or the topic has another one at the end; within one topic nothing may go back."""
    watch = OffsetWatch("in")
    check = watch.check
    old, new = CommittedOffset(9, TOPIC_ID), CommittedOffset(2, OTHER_ID)
    for place in (old, new, old, None, new):
        watch.note({0: place})
    assert 0 == check.failed
    watch.note({0: CommittedOffset(1, OTHER_ID)})
    assert [1] == [place.offset for place in check.examples]
    watch.note({0: None})
    watch.note({0: CommittedOffset(5, OTHER_ID)})
    assert 2 == check.failed, "it was gone, and the topic is the same"
    watch.note({0: None})
    watch.finish(TOPIC_ID)
    watch.finish(OTHER_ID)
    assert 2 == check.failed, "it is another topic, and what was judged is not judged again"
    watch.note({0: new})
    watch.note({0: None})
    watch.finish(OTHER_ID)
    assert 3 == check.failed


@pytest.mark.parametrize(
    ("metadata", "topic_id"),
    [
        ("enricher/1 topic-id=kz7-Q2mNTXS0b_1d0wY3sA", "kz7-Q2mNTXS0b_1d0wY3sA"),
        ("enricher/1 topic-id=kz7+Q2mNTXS0b/1d0wY3sA attempts=3 alone=1", "kz7+Q2mNTXS0b/1d0wY3sA"),
        ("enricher/1 attempts=3", None),
        ("enricher/1", None),
        ("enricher/2 topic-id=kz7-Q2mNTXS0b_1d0wY3sA", None),
        ("", None),
        (None, None),
        ("NULL", None),
    ],
)
def test_the_topic_id_is_read_from_a_commits_metadata(metadata: str | None, topic_id: str | None) -> None:
    """In the form that workers write; other metadata name no topic."""
    assert topic_id == topic_id_in(metadata)


def test_the_metadata_that_workers_write_is_understood() -> None:
    """It is implemented twice on purpose; both must agree."""
    written = CommitMetadata(TOPIC_ID, Mark(attempts=2)).encode()
    assert {0: CommittedOffset(7, TOPIC_ID)} == committed_of([TopicPartition("in", 0, 7, written)])


def test_an_offset_of_an_earlier_topic_counts_as_none() -> None:
    """An offset that names no topic counts, and all do if the topic's own id is unknown."""
    committed = {0: CommittedOffset(5, TOPIC_ID), 1: CommittedOffset(6, OTHER_ID), 2: CommittedOffset(7), 3: None}
    assert {0: 5, 1: None, 2: 7, 3: None} == of_topic(committed, TOPIC_ID)
    assert {0: 5, 1: 6, 2: 7, 3: None} == of_topic(committed, None)


def test_one_topic_id_is_written_in_two_alphabets() -> None:
    """The client writes base64 with + and /, Kafka's tools with - and _."""
    assert same_topic("kz7-Q2mNTXS0b_1d0wY3sA", "kz7+Q2mNTXS0b/1d0wY3sA")
    assert not same_topic(TOPIC_ID, OTHER_ID)


GOOD = {
    "enricher.source.topic": b"in", "enricher.source.topic.id": TOPIC_ID.encode(), "enricher.source.partition": b"0",
    "enricher.source.offset": b"12", "enricher.record.id": b"x", "enricher.version": b"%d" % VERSION,
    "enricher.schema.version": b"2", "content-type": b"application/json",
}  # fmt: skip


def test_headers_name_their_source() -> None:
    """A dead letter has other names, and a tombstone no content type."""
    assert Source("in", 0, 12, TOPIC_ID, "x", VERSION) == source_of_record(GOOD, tombstone=False)
    assert source_of_record(GOOD, tombstone=True) is None
    assert source_of_dead_letter(GOOD) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("source.offset", b"+1"),
        ("source.offset", b"9" * 5000),
        ("source.topic", b""),
        ("record.id", None),
        ("version", b"007"),
        ("version", b"9223372036854775808"),
        ("version", None),
        ("source.topic.id", None),
        ("source.topic.id", TOPIC_ID.encode() + b"=="),
        ("source.topic.id", b"\xff" * 22),
        ("schema.version", b"3"),
    ],
)
def test_headers_that_the_schema_refuses_name_no_source(name: str, value: bytes | None) -> None:
    """Decimals have no leading zeros, versions 63 bits, ids 22 characters."""
    assert source_of_record(GOOD | {f"enricher.{name}": value}, tombstone=False) is None


def test_records_are_alike_up_to_their_scores() -> None:
    """Positions and labels must be equal, scores nearly; everything else must be equal too."""
    entity = {"field": "body", "start": 0, "end": 3, "text": "abc", "label": "X", "score": 0.5}
    record = {"id": "a", "entities": [entity]}
    assert alike(record, {"id": "a", "entities": [entity | {"score": 0.5011}]})
    for other in (entity | {"score": 0.51}, entity | {"label": "Y"}, entity | {"end": 4}):
        assert not alike(record, {"id": "a", "entities": [other]})
    assert not alike(record, {"id": "a", "entities": []})
    assert not alike(record, {"id": "b", "entities": [entity]})


def test_a_sample_is_as_large_as_asked_for() -> None:
    """Without duplicates, and all records if there are no more."""
    chosen = chosen_of(1_000, 20)
    assert chosen is not None
    assert 20 == sum(number in chosen for number in range(1_000))
    assert chosen_of(5, 20) is None


def test_headers_that_workers_write_are_read() -> None:
    """The record's id and version are implemented twice on purpose."""
    raw = RawRecord(Partition("articles", 3), 17, None, None, topic_id=TOPIC_ID)
    written = dict(record_headers(raw, version=VERSION, tombstone=True))
    source = Source("articles", 3, 17, TOPIC_ID)
    assert replace(source, record_id=record_id(source), version=VERSION) == source_of_record(written, tombstone=True)


def test_a_version_belongs_to_one_offset() -> None:
    """The layout is implemented twice on purpose; both must agree, for every epoch and generation."""
    for epoch, generation in ((0, 0), (1, 4095), (255, 7)):
        version, source = record_version(epoch, 17, generation), Source("articles", 3, 17)
        assert belongs_to(version, source)
        assert not belongs_to(version, replace(source, offset=18))


@pytest.mark.parametrize("backwards", [False, True])
def test_an_epoch_must_not_begin_below_the_end_of_an_earlier_one(*, backwards: bool) -> None:
    """A lower epoch for newer inputs is found, in whatever order records are read; generations may go up and down."""

    def kept(*versions: tuple[int, int, int], partition: int = 0) -> bool:
        order = VersionOrder()
        read = reversed(versions) if backwards else versions
        return all(order.keeps(record_version(*parts), Source("articles", partition, parts[1])) for parts in read)

    assert kept((0, 1, 0), (0, 2, 1), (1, 3, 0), (0, 2, 5))
    assert kept((3, 1, 0), (3, 1, 0))
    assert not kept((1, 1, 0), (0, 2, 0))
    assert not kept((0, 1, 0), (2, 2, 0), (1, 3, 0))
    order = VersionOrder()
    assert order.keeps(record_version(1, 9, 0), Source("articles", 0, 9))
    assert order.keeps(record_version(0, 10, 0), Source("articles", 1, 10))  # another partition is ordered by itself
