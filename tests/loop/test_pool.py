"""The pool of threads: bounded, polled, and never in the way of the process's end."""

from __future__ import annotations

import threading
import time

import pytest
from support.patience import PATIENCE_S

from enricher.worker.loop.pool import WorkerPool


def _gather(pool: WorkerPool[int, int], wakeup: threading.Semaphore, count: int) -> list[int]:
    results: list[int] = []
    for _ in range(count):
        assert wakeup.acquire(timeout=PATIENCE_S)
        results += pool.take_results()
    return results


def test_every_item_comes_back_once_and_sets_the_wakeup() -> None:
    """A hundred items through three threads give a hundred results and a hundred wake-ups."""
    wakeup = threading.Semaphore(0)
    pool: WorkerPool[int, int] = WorkerPool(
        lambda item: item * item, threads=3, waiting=97, wake=wakeup.release, name="test"
    )
    for item in range(100):
        pool.submit(item)
    assert [item * item for item in range(100)] == sorted(_gather(pool, wakeup, 100))
    assert pool.busy == 0
    pool.close()


def test_one_thread_keeps_the_order_of_submission() -> None:
    """Items wait in a queue, first in, first out."""
    wakeup = threading.Semaphore(0)
    pool: WorkerPool[int, int] = WorkerPool(lambda item: item, threads=1, waiting=9, wake=wakeup.release, name="test")
    for item in range(10):
        pool.submit(item)
    assert list(range(10)) == _gather(pool, wakeup, 10)
    pool.close()


def test_room_shrinks_with_each_item_and_grows_only_when_results_are_taken() -> None:
    """Room counts what was submitted and not taken back, whether it still runs or not."""
    wakeup = threading.Semaphore(0)
    pool: WorkerPool[int, int] = WorkerPool(lambda item: item, threads=2, waiting=1, wake=wakeup.release, name="test")
    assert (pool.capacity, pool.busy) == (3, 0)
    pool.submit(1)
    pool.submit(2)
    assert wakeup.acquire(timeout=PATIENCE_S)
    assert wakeup.acquire(timeout=PATIENCE_S)
    assert (pool.capacity, pool.busy) == (1, 2)
    assert sorted(pool.take_results()) == [1, 2]
    assert (pool.capacity, pool.busy) == (3, 0)
    pool.close()


def test_submitting_without_room_is_a_bug() -> None:
    """The bound is the owner's duty, and held by an assertion."""
    never = threading.Event()
    pool: WorkerPool[int, object] = WorkerPool(
        lambda _: never.wait(), threads=1, waiting=0, wake=lambda: None, name="test"
    )
    pool.submit(0)
    with pytest.raises(AssertionError, match="beyond the capacity"):
        pool.submit(1)
    never.set()
    pool.close()


def test_each_thread_begins_once_before_its_first_item() -> None:
    """What a thread needs for itself is there when its first item comes."""
    wakeup, begun, ran = threading.Semaphore(0), list[int](), list[int]()

    def run(_: int) -> None:
        assert threading.get_ident() in begun
        ran.append(threading.get_ident())

    pool: WorkerPool[int, None] = WorkerPool(
        run, threads=3, waiting=9, wake=wakeup.release, name="test", begin=lambda: begun.append(threading.get_ident())
    )
    for item in range(12):
        pool.submit(item)
    assert all(wakeup.acquire(timeout=PATIENCE_S) for _ in range(12))
    assert [None] * 12 == pool.take_results()
    pool.close()
    assert len(begun) == len(set(begun)) == 3
    assert set(ran) <= set(begun)


def test_what_run_raises_is_raised_again_by_take_results() -> None:
    """An error of the thread reaches the owner's thread, sets the wakeup, and leaves the thread working."""
    wakeup = threading.Semaphore(0)
    pool: WorkerPool[int, int] = WorkerPool(
        lambda item: 10 // item, threads=1, waiting=1, wake=wakeup.release, name="test"
    )
    pool.submit(0)
    assert wakeup.acquire(timeout=PATIENCE_S)
    with pytest.raises(ZeroDivisionError):
        pool.take_results()
    pool.submit(5)
    assert wakeup.acquire(timeout=PATIENCE_S)
    assert pool.take_results() == [2]
    pool.close()


def test_close_drops_what_waits_and_ends_the_threads() -> None:
    """After close, only the item that was running has run, and no thread is left."""
    started, go, seen = threading.Event(), threading.Event(), list[int]()

    def run(item: int) -> None:
        started.set()
        go.wait()
        seen.append(item)

    pool: WorkerPool[int, object] = WorkerPool(run, threads=1, waiting=5, wake=lambda: None, name="closing")
    for item in range(6):
        pool.submit(item)
    assert started.wait(timeout=PATIENCE_S)
    threading.Timer(0.05, go.set).start()
    pool.close()
    assert seen == [0]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("closing")]


def test_a_hung_run_does_not_block_close() -> None:
    """Close gives up after its bound, and the thread that hangs is a daemon, which the process may leave behind."""
    started, never = threading.Event(), threading.Event()

    def hang(_: int) -> None:
        started.set()
        never.wait()

    pool: WorkerPool[int, object] = WorkerPool(hang, threads=2, waiting=0, wake=lambda: None, name="hung")
    pool.submit(0)
    assert started.wait(timeout=PATIENCE_S)
    before_s = time.monotonic()
    pool.close(timeout_s=0.05)
    assert time.monotonic() - before_s < 5
    assert [thread.daemon for thread in threading.enumerate() if thread.name.startswith("hung")] == [True]
    never.set()
