"""Where the time of one article goes: the clocks in the worker, and the stages that are made of their readings."""

from __future__ import annotations

from tools.bench.legs.latency.stages import STAGES, StageTimes, stages_of
from tools.bench.timeline import PATCHED, BatchTimes, Passage, Timeline, TransactionTimes

NAMES = list(STAGES)


def _passage(**changes: object) -> Passage:
    """Polled at 3 s, tokenised until 7, one run from 10 to 20, committed at 30."""
    usual: dict[str, object] = {
        "polling_s": 0.0,
        "polled_s": 3.0,
        "to_tokenizer_s": 4.0,
        "tokenizing_s": 5.0,
        "tokenized_s": 6.0,
        "queued_s": 7.0,
        "batches": [BatchTimes(8.0, 10.0, 20.0)],
        "finished_s": 21.0,
        "transaction": TransactionTimes(24.0, 25.0, 26.0, 27.0, 28.0, 30.0),
    }
    return Passage(**(usual | changes))  # type: ignore[arg-type]


def _stages(passage: Passage, **changes: float) -> dict[str, float]:
    """In seconds, without stages that took no time."""
    client = {"due_s": 0.0, "sent_s": 1.0, "acknowledged_s": 2.0, "readable_s": 2.5, "seen_s": 32.0} | changes
    return {name: ms / 1000 for name, ms in zip(NAMES, stages_of(passage, **client), strict=True) if ms}


def test_each_stage_lasts_from_one_moment_to_the_next() -> None:
    """Every stage but the client's queue takes time here, and together they are the latency."""
    stages = _stages(_passage())
    assert [*NAMES[:3], *NAMES[4:]] == list(stages)
    assert [1.0] * 7 == [stages[name] for name in NAMES[:8] if name in stages]
    assert (1.0, 2.0, 10.0, 1.0, 3.0) == tuple(stages[name] for name in NAMES[8:13])
    assert 32.0 == sum(stages.values())


def test_record_that_comes_while_the_loop_is_elsewhere_waits_in_the_queue() -> None:
    """The loop polled at 2.75 s what a waiting consumer had at 2.5 s."""
    stages = _stages(_passage(polling_s=2.75))
    assert (0.5, 0.5) == (stages[NAMES[2]], stages[NAMES[3]])


def test_record_that_is_delivered_before_its_acknowledgement_took_no_time_to_fetch() -> None:
    """The publisher's thread may be told later than the worker: the acknowledgement counts as simultaneous."""
    stages = _stages(_passage(), acknowledged_s=9.0, readable_s=9.0)
    assert 2.0 == stages[NAMES[1]]
    assert NAMES[2] not in stages
    assert 32.0 == sum(stages.values())


def test_reader_may_see_a_record_before_the_commit_returns() -> None:
    """Then reading took no time, and the sum is still the latency."""
    stages = _stages(_passage(), seen_s=29.0)
    assert NAMES[-1] not in stages
    assert 1.0 == stages["commit"]
    assert 29.0 == sum(stages.values())


def test_windows_that_wait_while_others_of_their_article_run_do_not_wait_for_the_scheduler() -> None:
    """Of 7 to 20 s one run takes 8 to 12, the last one 15 to 20: it was submitted at 14, so 3 s were no run."""
    stages = _stages(_passage(batches=[BatchTimes(14.0, 15.0, 20.0), BatchTimes(7.5, 8.0, 12.0)]))
    assert (3.0, 1.0, 9.0) == tuple(stages[name] for name in NAMES[8:11])


def test_runs_at_the_same_time_are_counted_once() -> None:
    """Two threads run batches of one article, 8 to 16 s and 10 to 20 s."""
    stages = _stages(_passage(batches=[BatchTimes(7.0, 8.0, 16.0), BatchTimes(7.0, 10.0, 20.0)]))
    assert 12.0 == stages["runs of the model"]
    assert 1.0 == stages["wait for a model thread"]


def test_article_without_windows_has_no_stages_of_the_model() -> None:
    """An empty article, or one that became a dead letter, is finished by the loop."""
    stages = _stages(_passage(batches=[]))
    assert not {"wait in the scheduler", "wait for a model thread", "runs of the model"} & set(stages)
    assert 32.0 == sum(stages.values())


def test_slowest_articles_have_a_mean_of_their_own() -> None:
    """Of forty articles the two slowest."""
    times = StageTimes([[0.0] * (len(NAMES) - 1) + [float(ms)] for ms in range(40)])
    assert 38.5 == times.slowest_ms()[-1]
    assert 19.5 == times.mean_ms()[-1]


def test_every_clock_is_on_a_method_that_is_there() -> None:
    """A renamed method would leave its stage at zero; afterwards all methods are restored."""

    class Model:
        """Stands for the engine and for the tokenizer."""

        engine = tokenizer = type("Anything", (), {"run": None, "tokenize": None})()

    before = [getattr(owner, name) for owner, name in PATCHED]
    with Timeline().watching(Model):  # type: ignore[arg-type]  # only its two methods are replaced
        assert all(getattr(owner, name) is not it for (owner, name), it in zip(PATCHED, before, strict=True))
    assert before == [getattr(owner, name) for owner, name in PATCHED]
