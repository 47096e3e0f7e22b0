"""What is made of assigned partitions that come, go, wait, and deliver nothing, and what the client is told of them."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition
from kafka.clients import config_for
from kafka.quiet import CLIENT_ERRORS, CONFIG, OTHER, PLACE, Quiet, no_answer
from support.topics import Topics

from enricher.errors import Stalled, TransactionTrouble
from enricher.worker.kafka import starts
from enricher.worker.kafka.assignment import Assignment, Fetching
from enricher.worker.kafka.partition import State
from enricher.worker.kafka.partitions import Partitions
from enricher.worker.kafka.starts import StartOffset
from enricher.worker.kafka.topicwatch import TopicReplaced
from enricher.worker.records import Mark, Partition, Start
from enricher.worker.rules.commit_metadata import CommitMetadata


def silent_for(
    assignment: Assignment, seconds: int, *, after_s: float = 0.0, held: Collection[Partition] = (), busy: bool = False
) -> None:
    """The loop polls, and no records come. It begins so long after the present.

    `held`: what the loop wants nothing of. `busy`: another partition delivers a record a second while it is read.
    """
    began_s, partitions = time.monotonic() + after_s, assignment.partitions
    for second in range(seconds):
        assignment.hold(held, began_s + second)
        assignment.tend(began_s + second)
        if busy and partitions[OTHER].state is State.READING:
            partitions[OTHER].deliver(partitions[OTHER].position or 0, None, began_s + second)
        else:
            assignment.note_drain(began_s + second)


@pytest.fixture
def quiet() -> Quiet:
    """A client that never delivers a record."""
    return Quiet()


@pytest.fixture
def assignment(quiet: Quiet) -> Assignment:
    """The assignment of that client, which has been given one partition."""
    assignment = Assignment(quiet.consumer, CONFIG, quiet.watch, CLIENT_ERRORS)
    assignment.add([TopicPartition(*PLACE)])
    return assignment


def test_pauses_hide_no_silence(assignment: Assignment) -> None:
    """A loop that pauses again and again would otherwise never learn that the client has lost a partition."""
    for turn in range(2):
        silent_for(assignment, 20, after_s=40.0 * turn)
        assignment.fetching.pause()
        silent_for(assignment, 20, after_s=40.0 * turn + 20)
        assignment.fetching.resume()
    with pytest.raises(Stalled, match="it has more records"):
        silent_for(assignment, 15, after_s=80.0)


def test_a_topic_made_again_ends_the_process_also_in_a_callback(
    assignment: Assignment, quiet: Quiet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the rebalance brings no partition: those assigned already belong to the old topic."""
    assignment.tend(time.monotonic())

    def confirm() -> None:
        raise TopicReplaced(PLACE.topic, "before", "now", "")

    monkeypatch.setattr(quiet, "confirm", confirm, raising=False)
    with pytest.raises(TopicReplaced):
        assignment.add([])


def test_a_stale_answer_about_offsets_is_not_believed(assignment: Assignment, quiet: Quiet) -> None:
    """Brokers before 4 were seen to report offsets that this process has moved beyond."""
    assignment.note_commit({PLACE: 5})
    quiet.offset = 3
    with pytest.raises(TransactionTrouble, match="reported as 3, which is stale"):
        assignment.rewind()
    quiet.offset = 5
    assignment.rewind()
    assert Start(5) == assignment.partitions.start_of(PLACE)


def test_an_offset_of_an_earlier_topic_is_refused_by_its_partition(assignment: Assignment, quiet: Quiet) -> None:
    """Brokers may keep offsets of a topic that was deleted: the topic that has its name now has other records there."""
    quiet.metadata = CommitMetadata(topic_id="deleted").encode()
    with pytest.raises(TopicReplaced, match=r"has read deleted\..*--at beginning --partition 3`"):
        assignment.rewind()


@pytest.mark.broker
def test_a_client_that_is_stuck_ends_the_process(topics: Topics, quiet: Quiet) -> None:
    """Its questions time out for ever, while the brokers answer another client: a restart is the cure (code 7)."""
    assignment = Assignment(quiet.consumer, config_for(topics), quiet.watch, CLIENT_ERRORS)
    assignment.add([TopicPartition(*PLACE)])
    quiet.trouble = no_answer()
    with pytest.raises(Stalled, match=r"tell another client.*the client is stuck.*nothing is lost") as end:
        assignment.rewind()
    assert (7, False) == (end.value.exit_code, end.value.undelivered)


def test_brokers_that_answer_nobody_are_waited_for(quiet: Quiet) -> None:
    """As in any outage: the recovery tries again."""
    assignment = Assignment(quiet.consumer, replace(CONFIG, request_timeout_s=0.2), quiet.watch, CLIENT_ERRORS)
    assignment.add([TopicPartition(*PLACE)])
    quiet.trouble = no_answer()
    with pytest.raises(TransactionTrouble, match="with another client"):
        assignment.rewind()
    quiet.trouble = None
    assignment.rewind()


def test_brokers_that_come_back_meanwhile_end_no_process(
    assignment: Assignment, quiet: Quiet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other client may be the first that they answer, so the own one is asked again."""
    other = Quiet()
    monkeypatch.setattr(starts, "new_client", lambda *_: other)
    monkeypatch.setattr(other, "committed", lambda *_, **__: setattr(quiet, "trouble", None), raising=False)
    quiet.trouble, quiet.offset = no_answer(), 5
    assignment.rewind()
    assert Start(5) == assignment.partitions.start_of(PLACE)


def test_the_end_of_a_held_partition_is_known(assignment: Assignment) -> None:
    """The client reports no ends of what it does not fetch, and lag counts from it. Afterwards the client's counts."""
    assignment.hold([PLACE], time.monotonic())
    assert {} == assignment.partitions.held_ends()
    silent_for(assignment, 10, held=[PLACE])
    assert {PLACE: 10} == assignment.partitions.held_ends()
    assignment.hold([], time.monotonic())
    assert {} == assignment.partitions.held_ends()
    assignment.hold([PLACE], time.monotonic())
    assert {} == assignment.partitions.held_ends(), "it may have grown meanwhile"


def test_a_hold_ends_where_the_partition_was_or_in_a_recovery(assignment: Assignment, quiet: Quiet) -> None:
    """A client that refuses to seek must not leave it paused for ever."""
    assignment.partitions[PLACE].reach_end(7, 0.0)
    assignment.hold([PLACE], time.monotonic())
    assignment.hold([], time.monotonic())
    assert [TopicPartition(*PLACE, 7)] == quiet.sought
    assert [PLACE] == assignment.partitions.of(State.READING)
    assignment.hold([PLACE], time.monotonic())
    quiet.refuses_to_seek = True
    with pytest.raises(TransactionTrouble, match="articles 3"):
        assignment.hold([], time.monotonic())


def test_what_is_not_read_yet_is_held_once_it_is(assignment: Assignment) -> None:
    """The loop says in each turn what it wants nothing of, and a start that is found late must not undo that."""
    assignment.partitions.rewind([PLACE], 0.0)
    assignment.hold([PLACE], time.monotonic())
    assert [PLACE] == assignment.partitions.of(State.SEARCHING)
    assignment.tend(time.monotonic() + 1)
    assignment.hold([PLACE], time.monotonic())
    assert [PLACE] == assignment.partitions.of(State.HELD)


def test_one_silent_beside_a_backlog_is_read_alone_and_then_ends_all(assignment: Assignment, quiet: Quiet) -> None:
    """What the client has fetched of the others is no excuse any more."""
    assignment.add([TopicPartition(*OTHER)])
    silent_for(assignment, 60, busy=True)
    assert set() == quiet.paused
    silent_for(assignment, 10, after_s=60.0, busy=True)
    assert {OTHER} == quiet.paused
    with pytest.raises(
        Stalled, match=r"articles 3 delivered nothing for 60 s: it has more records.*--describe --group"
    ):
        silent_for(assignment, 10, after_s=70.0, busy=True)


def test_the_others_go_on_where_they_were_when_it_delivers(assignment: Assignment, quiet: Quiet) -> None:
    """The client has dropped what it had fetched of them. A healthy partition ends no process, however long the backlog."""
    assignment.add([TopicPartition(*OTHER)])
    for after_s in (0.0, 65.0, 130.0):
        silent_for(assignment, 65, after_s=after_s, busy=True)
        assert {OTHER} == quiet.paused
        position = assignment.partitions[OTHER].position or 0
        assignment.partitions[PLACE].deliver(int(after_s), None, now_s := time.monotonic() + after_s + 65.0)
        assignment.hold([], now_s)
        assert TopicPartition(*OTHER, position) == quiet.sought[-1]
        assert (set(), [PLACE, OTHER]) == (quiet.paused, assignment.partitions.of(State.READING))


def test_it_is_read_alone_for_as_long_again_if_another_one_was_read(assignment: Assignment) -> None:
    """What comes meanwhile may have records that were fetched first."""
    assignment.add([TopicPartition(*OTHER)])
    silent_for(assignment, 65, busy=True)
    assignment.add([TopicPartition(PLACE.topic, 0)])
    silent_for(assignment, 10, after_s=65.0)
    with pytest.raises(Stalled, match="articles 3 delivered"):
        silent_for(assignment, 10, after_s=75.0)


def test_one_that_the_loop_holds_meanwhile_stays_held(assignment: Assignment, quiet: Quiet) -> None:
    """The loop wants nothing of it, whoever is read alone."""
    assignment.add([TopicPartition(*OTHER)])
    silent_for(assignment, 65, busy=True)
    now_s = time.monotonic() + 65.0
    assignment.hold([OTHER], now_s)
    assignment.partitions[PLACE].deliver(0, None, now_s)
    assignment.hold([OTHER], now_s)
    assert ({OTHER}, [OTHER]) == (quiet.paused, assignment.partitions.of(State.HELD))


@pytest.mark.parametrize("paused", [False, True])
def test_a_start_that_stays_unknown_ends_the_process(quiet: Quiet, *, paused: bool) -> None:
    """Although the partition's leader answers, and also if nothing is read for now."""
    assignment = Assignment(quiet.consumer, CONFIG, quiet.watch, CLIENT_ERRORS)
    quiet.trouble = no_answer()
    if paused:
        assignment.fetching.pause()
    before_s = time.monotonic()
    assignment.add([TopicPartition(*PLACE)])
    reason = r"articles 3 delivered nothing for 80 s: its committed offset is unknown \(.*_TIMED_OUT"
    with pytest.raises(Stalled, match=reason) as end:
        silent_for(assignment, 200)
    assert end.value.undelivered
    now_s = time.monotonic()
    assert 200 <= assignment.partitions.silent_s(now_s + 200) <= 200 + now_s - before_s


AT_7 = StartOffset(Start(7, Mark()))


class Stage:
    """A client that is told, and the partitions that it is told about."""

    def __init__(self) -> None:
        self.client = Quiet()
        self.partitions = Partitions(lambda _name: 10, bound_s=60, start_bound_s=80)
        self.fetching = Fetching(self.client.consumer, self.partitions, CLIENT_ERRORS)

    def assign(self, *names: Partition, start: StartOffset | None = AT_7) -> None:
        """These come with this start, as in the client's callback."""
        self.partitions.add(names, 0.0)
        self.fetching.assign(dict.fromkeys(names, start))
        if start:
            for name in names:
                self.partitions[name].begin(start.start)
        self.fetching.expect(names)


@pytest.fixture
def stage() -> Stage:
    """Nothing is assigned yet."""
    return Stage()


def test_a_partition_without_a_start_is_assigned_but_not_fetched(stage: Stage) -> None:
    """Until it begins; and for as long as the client cannot go there, it keeps waiting."""
    stage.assign(PLACE, start=None)
    assert {PLACE} == stage.client.paused
    stage.client.refuses_to_seek = True
    stage.fetching.begin({PLACE: AT_7})
    assert ({PLACE}, State.SEARCHING) == (stage.client.paused, stage.partitions[PLACE].state)
    stage.client.refuses_to_seek = False
    stage.fetching.begin({PLACE: AT_7})
    assert (set(), State.READING) == (stage.client.paused, stage.partitions[PLACE].state)
    assert [TopicPartition(*PLACE, 7)] == stage.client.sought


def test_during_a_pause_nothing_is_fetched_and_nothing_more_is_expected(stage: Stage) -> None:
    """Of what comes meanwhile neither; afterwards of all that is read."""
    stage.assign(PLACE)
    stage.fetching.pause()
    stage.assign(OTHER)
    assert {PLACE, OTHER} == stage.client.paused
    assert [PLACE] == stage.partitions.to_ask(time.monotonic() + 200)
    stage.fetching.resume()
    assert set() == stage.client.paused
    assert [PLACE, OTHER] == stage.partitions.to_ask(time.monotonic() + 200)


def test_first_records_are_gathered_until_every_partition_has_some(stage: Stage) -> None:
    """For a moment only: a partition whose leader is away must not make every poll wait."""
    stage.assign(PLACE, OTHER)
    now_s = time.monotonic()
    assert stage.fetching.gathers(now_s)
    assert not stage.fetching.gathers(now_s + 60)
    stage.partitions[PLACE].reach_end(7, 0.0)
    assert stage.fetching.gathers(now_s)
    stage.partitions[OTHER].reach_end(7, 0.0)
    assert not stage.fetching.gathers(now_s)


def test_partitions_that_stay_are_fetched_again_at_once_after_a_rebalance(stage: Stage) -> None:
    """The client paused them and may sleep; those that it has just been given wake it themselves."""
    stage.assign(PLACE)
    stage.fetching.fetch_again()
    assert [] == stage.client.sought
    stage.partitions[PLACE].reach_end(9, 0.0)
    stage.assign(OTHER)
    stage.fetching.fetch_again()
    stage.fetching.fetch_again()
    assert [TopicPartition(*PLACE, 9)] == stage.client.sought


def test_nobody_fetches_again_what_left_or_waits_or_is_held_or_paused(stage: Stage) -> None:
    """Nobody knows where they go on, or nobody wants their records now."""
    third = Partition(PLACE.topic, 5)
    stage.assign(PLACE, OTHER, third)
    stage.partitions.rewind([OTHER], 0.0)
    stage.partitions[third].hold()
    stage.assign()
    stage.partitions.remove([PLACE])
    stage.fetching.fetch_again()
    stage.assign(PLACE)
    stage.assign()
    stage.fetching.pause()
    stage.fetching.fetch_again()
    assert [] == stage.client.sought
