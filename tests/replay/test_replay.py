"""A range of the input is enriched again, exactly once, beside the live workers and without touching anything of theirs."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from commands.cli_runner import run
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from kafka.clients import config_for
from kafka.harness import (
    Sent,
    as_sent,
    assert_exactly_once,
    header_list,
    publish,
    short_articles,
    source_of,
    transaction,
    worker,
)
from support.forked import Forked
from support.made_again import make_again
from support.operating import delete_records, expel
from support.patience import PATIENCE_S, wait_until
from support.reading import committed_and_ends, read_all
from support.stub_worker import STUB_WORKER
from support.topics import PARTITIONS, Topics, make_topics

from enricher.errors import BrokerError, SettingsError, TransactionTrouble
from enricher.operate import replay as replaying
from enricher.operate.inspector import Inspector
from enricher.operate.replay import Pinned, count_left, pin, read_pinned
from enricher.worker.kafka.errors import ClientErrors, Polled, mapping_errors
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.rules.commit_metadata import CommitMetadata
from tools.chaos.proxy import Proxy
from tools.chaos.rules import Cut, Match
from tools.kafka import Cluster

pytestmark = pytest.mark.broker

QUICK = {"ENRICHER_KAFKA__SESSION_TIMEOUT_S": "6", "ENRICHER_KAFKA__TRANSACTION_TIMEOUT_S": "5"}
Places = Mapping[tuple[int, int], Sent]


@dataclass(frozen=True, slots=True)
class Replay:
    """The topics of a replay, which is a group of its own, and of the live workers that it runs beside."""

    live: Topics
    own: Topics

    def started(self, *options: str, instance: str = "replay-0", log: Path | None = None, rate: float = 0) -> Forked:
        """A process of it, with a stub for the model. `rate`: articles per second, 0 for as many as it can."""
        own = {"ENRICHER_KAFKA__INSTANCE": instance, "ENRICHER_WORKER__MAX_ARTICLES_PER_SECOND": str(rate)}
        environment = self.live.environment | QUICK | own
        chosen = ["--into", self.own.output, "--dead-letters", self.own.dead_letters, "--group", self.own.group]
        program = [STUB_WORKER, "replay", "--report-every-s", "1", *chosen, *options]
        return Forked(program, {**os.environ, **environment}, log)

    def outputs(self) -> int:
        """How many records it has written."""
        return len(read_all(self.own.bootstrap_servers, self.own.output))

    def has_more_than(self, outputs: int) -> bool:
        """Whether it has written more records than these."""
        return self.outputs() > outputs

    def assert_holds(self, places: Places) -> None:
        """Exactly these inputs have one record each, and nothing of the live workers has moved."""
        assert_exactly_once(read_all(self.own.bootstrap_servers, self.own.output), places)
        assert [] == read_all(self.own.bootstrap_servers, self.own.dead_letters)
        assert [] == read_all(self.live.bootstrap_servers, self.live.output)
        positions = committed_and_ends(self.live.bootstrap_servers, self.live.group, self.live.input)
        assert all(committed < 0 for committed, _ in positions.values())


@pytest.fixture
def replay(broker: Cluster) -> Replay:
    """A replay that has not begun."""
    return Replay(make_topics(broker.bootstrap_servers), make_topics(broker.bootstrap_servers))


@contextmanager
def ended(process: Forked) -> Iterator[Forked]:
    """Killed at the end if it still runs."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def fill(topics: Topics, count: int, seed: int = 1) -> dict[tuple[int, int], Sent]:
    """Short articles; returns where each is."""
    articles = [article | {"id": f"{seed}-{article['id']}"} for article in short_articles(count, seed)]
    return publish(topics.bootstrap_servers, topics.input, map(as_sent, articles))


def in_transactions(topics: Topics, count: int, *, commit: bool) -> dict[tuple[int, int], Sent]:
    """Articles in a transaction, whose marker takes an offset behind them; aborted ones leave offsets without records."""
    before = {
        n: end for n, (_, end) in committed_and_ends(topics.bootstrap_servers, topics.group, topics.input).items()
    }
    sent = [as_sent(article | {"id": f"t-{article['id']}-{commit}"}) for article in short_articles(count)]
    with transaction(topics.bootstrap_servers, f"{topics.input}-{commit}", commit=commit) as producer:
        for number, each in enumerate(sent):
            producer.produce(topics.input, each.value, each.key, partition=number % PARTITIONS)
    places = {}
    for number, each in enumerate(sent):
        places[number % PARTITIONS, before[number % PARTITIONS] + number // PARTITIONS] = each
    return places if commit else {}


def test_killed_processes_replay_a_range_once_behind_an_open_transaction(
    replay: Replay,
) -> None:
    """Two processes share it, each is killed and started again; what comes after the range was chosen is not in it."""
    places = fill(replay.live, 120) | in_transactions(replay.live, 8, commit=True)
    in_transactions(replay.live, 8, commit=False)
    options = ("--from", "beginning", "--to", "end")
    with ExitStack() as open_until_killed:
        opened = transaction(replay.live.bootstrap_servers, f"{replay.live.input}-open")
        producer = open_until_killed.enter_context(opened)
        late = as_sent(short_articles(1)[0] | {"id": "late"})
        ends = committed_and_ends(replay.live.bootstrap_servers, replay.live.group, replay.live.input)
        producer.produce(replay.live.input, late.value, late.key, partition=0)
        assert 0 == producer.flush(PATIENCE_S)
        for kill in range(2):
            with (
                ended(replay.started(*options, rate=30)) as first,
                ended(replay.started(*options, instance="replay-1", rate=30)) as second,
            ):
                wait_until(partial(replay.has_more_than, replay.outputs()), PATIENCE_S, "some records")
                (first, second)[kill].kill()
            expel(replay.own.bootstrap_servers, replay.own.group)
        with ended(replay.started(*options)) as first, ended(replay.started(*options, instance="replay-1")) as second:
            wait_until(lambda: replay.outputs() == len(places), PATIENCE_S, "all but what the transaction hides")
            assert (None, None) == (first.poll(), second.poll()), "the open transaction lies in the range"
            open_until_killed.close()
            fill(replay.live, 20, seed=2)
            assert (0, 0) == (first.wait(PATIENCE_S), second.wait(PATIENCE_S))
    replay.assert_holds({**places, (0, ends[0][1]): late})
    with ended(replay.started(*options)) as again:
        assert 0 == again.wait(PATIENCE_S)
    replay.assert_holds({**places, (0, ends[0][1]): late})


def test_a_replay_that_is_stopped_says_so_and_goes_on(replay: Replay, tmp_path: Path) -> None:
    """A pod that is evicted has not finished its job."""
    places, log = fill(replay.live, 80), tmp_path / "log"
    options = ("--from", "beginning", "--to", "end")
    with ended(replay.started(*options, rate=10, log=log)) as process:
        wait_until(lambda: replay.outputs() > 0, PATIENCE_S, "some records")
        process.terminate()
        assert 128 + signal.SIGTERM == process.wait(PATIENCE_S)
    assert "of the range are left; start it again to go on" in log.read_text("utf-8")
    with ended(replay.started(*options)) as process:
        assert 0 == process.wait(PATIENCE_S)
    replay.assert_holds(places)


def test_ranges_of_times_and_of_a_file_are_replayed_beside_live_workers(replay: Replay, tmp_path: Path) -> None:
    """Live workers go on; partitions that a file does not name are left out."""
    fill(replay.live, 20)
    time_from = _now_after_a_tick()
    wanted = fill(replay.live, 40, seed=2)
    time_to = _now_after_a_tick()
    fill(replay.live, 20, seed=3)
    with worker(replay.live.environment, stub=True) as live:
        with ended(replay.started("--from", time_from, "--to", time_to)) as process:
            assert 0 == process.wait(PATIENCE_S)
        wait_until(
            lambda: len(read_all(replay.live.bootstrap_servers, replay.live.output)) == 80, PATIENCE_S, "live records"
        )
        live.terminate()
        assert 0 == live.wait(PATIENCE_S)
    assert_exactly_once(read_all(replay.own.bootstrap_servers, replay.own.output), wanted)
    file = tmp_path / "from.json"
    file.write_text('{"0": 2, "2": 0}', "utf-8")
    other = replace(replay, own=make_topics(replay.own.bootstrap_servers))
    with ended(other.started("--from", str(file), "--to", "end")) as process:
        assert 0 == process.wait(PATIENCE_S)
    found = {source_of(message) for message in read_all(other.own.bootstrap_servers, other.own.output)}
    ends = committed_and_ends(replay.live.bootstrap_servers, replay.live.group, replay.live.input)
    assert {(0, at) for at in range(2, ends[0][1])} | {(2, at) for at in range(ends[2][1])} == found


def _now_after_a_tick() -> str:
    """A time between what was published before and what is published afterwards."""
    began_ms = int(time.time() * 1000)
    wait_until(lambda: int(time.time() * 1000) > began_ms + 1, PATIENCE_S, "the next millisecond", 0.001)
    time_s = began_ms / 1000 + 0.001
    wait_until(lambda: time.time() > time_s + 0.002, PATIENCE_S, "a later millisecond", 0.001)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(time_s))}.{int(time_s * 1000) % 1000:03d}Z"


def test_partitions_that_are_added_later_are_not_in_the_range(replay: Replay) -> None:
    """The range is what the topic held when it was chosen, and the group ends although others are there."""
    places = fill(replay.live, 40)
    options = ("--from", "beginning", "--to", "end")
    with ended(replay.started(*options, rate=10)) as process:
        wait_until(lambda: replay.outputs() > 0, PATIENCE_S, "some records")
    expel(replay.own.bootstrap_servers, replay.own.group)
    admin = AdminClient({"bootstrap.servers": replay.live.bootstrap_servers})
    for topic in (replay.live.input, replay.own.output, replay.own.dead_letters):
        admin.create_partitions([NewPartitions(topic, PARTITIONS + 2)])[topic].result(PATIENCE_S)
    wait_until(
        lambda: len(admin.list_topics(replay.live.input).topics[replay.live.input].partitions) == PARTITIONS + 2,
        PATIENCE_S, "the new partitions",
    )  # fmt: skip
    fill(replay.live, 60, seed=2)
    with ended(replay.started(*options)) as process:
        assert 0 == process.wait(PATIENCE_S)
    replay.assert_holds(places)


def test_processes_that_begin_together_agree_on_the_range(replay: Replay) -> None:
    """Whoever commits first chooses it; the others, which saw more of the topic, take that."""
    fill(replay.live, 40)
    config = replay_config(replay)

    def pinned(number: int) -> Pinned:
        def ranges_now(ask: Inspector) -> Mapping[int, tuple[int, int]]:
            ends = ask.ends(config.input_topic, committed_only=False)
            return {partition: (0, end - number) for partition, end in ends.items()}

        return pin(config, ranges_now)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(pinned, range(4)))
    assert 1 == len({tuple(sorted(each.until.items())) for each in found})
    assert found[0] == pinned(4)


def test_a_range_whose_commit_ends_in_an_unknown_way_is_chosen_once(
    replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a broker meets two processes at once: it is asked again, and takes what was committed."""
    fill(replay.live, 8)
    config, tries = replay_config(replay), list[str]()

    @contextmanager
    def trouble_once(doing: str, client_errors: ClientErrors, client: Polled) -> Iterator[None]:
        with mapping_errors(doing, client_errors, client):
            yield
        tries.append(doing)
        if len(tries) == 1:
            raise TransactionTrouble("committing the range: UNKNOWN: EndTxn commit failed: Unknown broker error")

    monkeypatch.setattr(replaying, "mapping_errors", trouble_once)
    assert {0: 2} == pin(config, lambda _: {0: (0, 2 + len(tries))}).until
    assert ["committing the range"] * 2 == tries


def test_of_two_ranges_that_are_chosen_at_once_for_a_group_one_is_refused(
    replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is committed after the look at the group's offsets, and may be at work already."""
    fill(replay.live, 8)
    late, early = replay_config(replay), replay_config(replay, "2026-01-01..end")
    looks: list[Pinned | None] = []

    def look(ask: Inspector, config: KafkaConfig) -> Pinned | None:
        found = read_pinned(ask, config)
        if config is late:
            looks.append(found)
            if len(looks) == 2:  # the one under the lock
                pin(early, lambda _: {0: (0, 2)})
        return found

    monkeypatch.setattr(replaying, "read_pinned", look)
    with pytest.raises(SettingsError, match=r"replays 2026-01-01\.\.end, not beginning\.\.end"):
        pin(late, lambda _: {0: (0, 1)})


def replay_config(replay: Replay, name: str = "beginning..end") -> KafkaConfig:
    """The configuration of its clients."""
    return config_for(replay.own, input_topic=replay.live.input, replay=name)


def test_offsets_of_an_earlier_topic_of_the_name_are_no_range(replay: Replay) -> None:
    """A group with members keeps the offsets of a topic that is gone."""
    fill(replay.live, 8)
    metadata = CommitMetadata("A" * 22, replay="beginning..end", until=3).encode()
    consumer = Consumer({"bootstrap.servers": replay.own.bootstrap_servers, "group.id": replay.own.group})
    consumer.commit(offsets=[TopicPartition(replay.live.input, 0, 1, metadata=metadata)], asynchronous=False)
    consumer.close()
    with pytest.raises(BrokerError, match="its range is gone"):
        pin(replay_config(replay), lambda _: {0: (0, 1)})


def test_a_group_that_loses_its_offsets_meanwhile_has_not_finished(
    replay: Replay,
) -> None:
    """Without them nobody knows what is left, and the replay would end as if all of it were done."""
    fill(replay.live, 8)
    config = replay_config(replay)
    with pytest.raises(BrokerError, match="has lost its offsets"):
        count_left(config)
    pin(config, lambda _: {0: (0, 2)})
    assert 2 == count_left(config)


def test_a_broker_that_comes_up_after_the_replay_is_waited_for(replay: Replay, proxy: Proxy, tmp_path: Path) -> None:
    """A pod that is rescheduled while the brokers restart does not end the job, as code 4 would."""
    places, log = fill(replay.live, 8), tmp_path / "log"
    beyond = {"ENRICHER_KAFKA__BOOTSTRAP_SERVERS": proxy.addresses, "ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "1"}
    distant = replace(replay, live=replace(replay.live, environment=replay.live.environment | beyond))
    proxy.apply(away := Cut(Match()))
    with ended(distant.started("--from", "beginning", "--to", "end", log=log)) as process:
        wait_until(lambda: log.read_text("utf-8").count("asking again") > 1, PATIENCE_S, "it asks again")
        proxy.lift(away)
        assert 0 == process.wait(PATIENCE_S)
    replay.assert_holds(places)


def refusal(replay: Replay, *options: str, log: Path) -> str:
    """What a process says that must not begin."""
    with ended(replay.started(*options, log=log)) as process:
        assert process.wait(PATIENCE_S) in {2, 4}
    return log.read_text("utf-8")


def test_a_dry_run_shows_the_range_and_commits_nothing(replay: Replay) -> None:
    """The topics that it needs are named with the command that makes them; of a replay that has ended nothing is left."""
    fill(replay.live, 8)
    into = f"{replay.own.output}.next"
    topics = ("--into", into, "--dead-letters", f"{into}.dead")
    dry = ("replay", "--from", "beginning", "--to", "end", "--group", replay.own.group, "--dry-run", *topics)
    environment = {**replay.live.environment, "ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "2"}
    missing = run(*dry, env=environment).exception
    assert f"create it ('enricher topics create --into {into} --dead-letters {into}.dead')" in str(missing)
    assert 0 == run("topics", "create", *topics, env=environment).exit_code
    assert "8 offsets of" in run(*dry, env=environment).stdout
    group = committed_and_ends(replay.own.bootstrap_servers, replay.own.group, replay.live.input)
    assert all(committed < 0 for committed, _ in group.values())
    with ended(replay.started("--from", "beginning", "--to", "end", *topics)) as process:
        assert 0 == process.wait(PATIENCE_S)
    assert "0 offsets of" in run(*dry, env=environment).stdout


def test_a_replay_does_not_write_twice_into_a_topic_or_read_another_range(replay: Replay, tmp_path: Path) -> None:
    """A group whose offsets have expired would begin again; another range needs another group."""
    fill(replay.live, 8)
    options = ("--from", "beginning", "--to", "end")
    with ended(replay.started(*options)) as process:
        assert 0 == process.wait(PATIENCE_S)
    said = refusal(replay, "--from", "2020-01-01", "--to", "end", log=tmp_path / "other")
    assert "replays beginning..end, not 2020-01-01T00:00:00+00:00..end" in said
    again = replace(replay, own=replace(replay.own, group=f"{replay.own.group}-2"))
    assert "is not empty" in refusal(again, *options, log=tmp_path / "again")
    assert replay.outputs() == 8
    with pytest.raises(SettingsError, match="is no replay"):
        pin(config_for(replay.live, replay="beginning..end", group_id=live_group(replay)), lambda _: {0: (0, 1)})


def live_group(replay: Replay) -> str:
    """The group of a live worker that has committed."""
    with worker(replay.live.environment, "--until-caught-up", stub=True) as process:
        assert 0 == process.wait(PATIENCE_S)
    return replay.live.group


def test_a_live_worker_does_not_go_on_with_a_replay(replay: Replay) -> None:
    """It would stop at the end of the range and look healthy."""
    fill(replay.live, 8)
    pin(
        replay_config(replay),
        lambda ask: {n: (0, end) for n, end in ask.ends(replay.live.input, committed_only=False).items()},
    )
    environment = replay.live.environment | {"ENRICHER_KAFKA__GROUP_ID": replay.own.group}
    with worker(environment, stub=True) as process:
        assert BrokerError.exit_code == process.wait(PATIENCE_S)
    assert [] == read_all(replay.live.bootstrap_servers, replay.live.output)


def test_the_range_is_gone_with_a_topic_that_was_made_again(replay: Replay, tmp_path: Path) -> None:
    """The new topic holds other records at these offsets."""
    fill(replay.live, 40)
    options = ("--from", "beginning", "--to", "end")
    log = tmp_path / "log"
    with ended(replay.started(*options, rate=5, log=log)) as process:
        wait_until(lambda: replay.outputs() > 0, PATIENCE_S, "some records")
        make_again(replay.live.bootstrap_servers, replay.live.input)
        assert BrokerError.exit_code == process.wait(PATIENCE_S)
    assert "is gone with the old topic" in log.read_text("utf-8")
    # The broker deletes the offsets with the topic, sooner or later.
    assert re.search("is not empty|its range is gone", refusal(replay, *options, log=tmp_path / "again"))


@pytest.mark.parametrize(("deleted", "last"), [(8, 7), (30, 19)])
def test_what_retention_deletes_before_it_is_replayed_is_named(
    replay: Replay, tmp_path: Path, deleted: int, last: int
) -> None:
    """All that is left is replayed, also if the whole range is gone."""
    places = fill(replay.live, 40 * PARTITIONS)
    pin(replay_config(replay), lambda ask: dict.fromkeys(ask.partitions(replay.live.input), (3, 20)))
    delete_records(replay.live.bootstrap_servers, replay.live.input, dict.fromkeys(range(PARTITIONS), deleted))
    log = tmp_path / "log"
    with ended(replay.started("--from", "beginning", "--to", "end", log=log)) as process:
        assert 0 == process.wait(PATIENCE_S)
    replay.assert_holds({(n, offset): sent for (n, offset), sent in places.items() if deleted <= offset < 20})
    named = re.findall(r"\[(\d)\]: offsets 3 to (\d+) of the range are gone", log.read_text("utf-8"))
    assert sorted(named) == [(str(n), str(last)) for n in range(PARTITIONS)]


def test_outputs_name_their_inputs_as_live_ones_do(replay: Replay) -> None:
    """Consumers find the article of a replayed record, and see no difference but the topic."""
    fill(replay.live, 8)
    with ended(replay.started("--from", "beginning", "--to", "end")) as process:
        assert 0 == process.wait(PATIENCE_S)
    live_group(replay)
    replayed, live = (
        {source_of(message): (message.key(), message.value(), _comparable(header_list(message)))
         for message in read_all(topics.bootstrap_servers, topics.output)}
        for topics in (replay.own, replay.live)
    )  # fmt: skip
    assert replayed == live


def _comparable(headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    return [(name, value) for name, value in headers if name not in {"traceparent", "enricher.enriched_at"}]
