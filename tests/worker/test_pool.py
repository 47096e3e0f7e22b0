"""The lanes: bounded, polled, and never in the way of the process's end."""

from __future__ import annotations

import threading
import time

import pytest

from enricher.worker.pool import Lanes


def _gather(lanes: Lanes[int, int], wakeup: threading.Semaphore, count: int) -> list[int]:
    results: list[int] = []
    for _ in range(count):
        assert wakeup.acquire(timeout=10)
        results += lanes.completed()
    return results


def test_every_item_comes_back_once_and_sets_the_wakeup() -> None:
    """A hundred items through three threads give a hundred results and a hundred wake-ups."""
    wakeup = threading.Semaphore(0)
    lanes: Lanes[int, int] = Lanes(lambda item: item * item, threads=3, waiting=97, wake=wakeup.release, name="test")
    for item in range(100):
        lanes.submit(item)
    assert [item * item for item in range(100)] == sorted(_gather(lanes, wakeup, 100))
    assert lanes.busy == 0
    lanes.close()


def test_one_thread_keeps_the_order_of_submission() -> None:
    """Items wait in a queue, first in, first out."""
    wakeup = threading.Semaphore(0)
    lanes: Lanes[int, int] = Lanes(lambda item: item, threads=1, waiting=9, wake=wakeup.release, name="test")
    for item in range(10):
        lanes.submit(item)
    assert list(range(10)) == _gather(lanes, wakeup, 10)
    lanes.close()


def test_room_shrinks_with_each_item_and_grows_only_when_results_are_taken() -> None:
    """Room counts what was submitted and not taken back, whether it still runs or not."""
    wakeup = threading.Semaphore(0)
    lanes: Lanes[int, int] = Lanes(lambda item: item, threads=2, waiting=1, wake=wakeup.release, name="test")
    assert (lanes.room, lanes.busy) == (3, 0)
    lanes.submit(1)
    lanes.submit(2)
    assert wakeup.acquire(timeout=10)
    assert wakeup.acquire(timeout=10)
    assert (lanes.room, lanes.busy) == (1, 2)
    assert sorted(lanes.completed()) == [1, 2]
    assert (lanes.room, lanes.busy) == (3, 0)
    lanes.close()


def test_submitting_without_room_is_a_bug() -> None:
    """The bound is the owner's duty, and held by an assertion."""
    never = threading.Event()
    lanes: Lanes[int, object] = Lanes(lambda _: never.wait(), threads=1, waiting=0, wake=lambda: None, name="test")
    lanes.submit(0)
    with pytest.raises(AssertionError, match="more than there is room for"):
        lanes.submit(1)
    never.set()
    lanes.close()


def test_each_thread_begins_once_before_its_first_item() -> None:
    """What a thread needs for itself is there when its first item comes."""
    wakeup, begun, ran = threading.Semaphore(0), list[int](), list[int]()

    def run(_: int) -> None:
        assert threading.get_ident() in begun
        ran.append(threading.get_ident())

    lanes: Lanes[int, None] = Lanes(
        run, threads=3, waiting=9, wake=wakeup.release, name="test", begin=lambda: begun.append(threading.get_ident())
    )
    for item in range(12):
        lanes.submit(item)
    assert all(wakeup.acquire(timeout=10) for _ in range(12))
    assert [None] * 12 == lanes.completed()
    lanes.close()
    assert len(begun) == len(set(begun)) == 3
    assert set(ran) <= set(begun)


def test_what_run_raises_is_raised_again_by_completed() -> None:
    """An error of the lane reaches the owner's thread, sets the wakeup, and leaves the lane working."""
    wakeup = threading.Semaphore(0)
    lanes: Lanes[int, int] = Lanes(lambda item: 10 // item, threads=1, waiting=1, wake=wakeup.release, name="test")
    lanes.submit(0)
    assert wakeup.acquire(timeout=10)
    with pytest.raises(ZeroDivisionError):
        lanes.completed()
    lanes.submit(5)
    assert wakeup.acquire(timeout=10)
    assert lanes.completed() == [2]
    lanes.close()


def test_close_drops_what_waits_and_ends_the_threads() -> None:
    """After close, only the item that was running has run, and no thread is left."""
    started, go, seen = threading.Event(), threading.Event(), list[int]()

    def run(item: int) -> None:
        started.set()
        go.wait()
        seen.append(item)

    lanes: Lanes[int, object] = Lanes(run, threads=1, waiting=5, wake=lambda: None, name="closing")
    for item in range(6):
        lanes.submit(item)
    assert started.wait(timeout=10)
    threading.Timer(0.05, go.set).start()
    lanes.close()
    assert seen == [0]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("closing")]


def test_a_hung_run_does_not_block_close() -> None:
    """Close gives up after its bound, and the thread that hangs is a daemon, which the process may leave behind."""
    started, never = threading.Event(), threading.Event()

    def hang(_: int) -> None:
        started.set()
        never.wait()

    lanes: Lanes[int, object] = Lanes(hang, threads=2, waiting=0, wake=lambda: None, name="hung")
    lanes.submit(0)
    assert started.wait(timeout=10)
    before_s = time.monotonic()
    lanes.close(timeout_s=0.05)
    assert time.monotonic() - before_s < 5
    assert [thread.daemon for thread in threading.enumerate() if thread.name.startswith("hung")] == [True]
    never.set()
