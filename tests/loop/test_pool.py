"""The pool of threads: bounded, polled, and never in the way of the process's end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.patience import PATIENCE_S

from enricher.worker.loop.pool import WorkerPool


class Woken:
    """A pool, and how often its owner was woken."""

    def __init__(self, run: Callable[[int], object], threads: int = 1, waiting: int = 9, **more: Any) -> None:  # noqa: ANN401
        self._wakeups = threading.Semaphore(0)
        self.pool: WorkerPool[int, object] = WorkerPool(
            run, threads=threads, waiting=waiting, wake=self._wakeups.release, name="test", **more
        )

    def submit(self, *items: int) -> None:
        """Hand these over."""
        for item in items:
            self.pool.submit(item)

    def gather(self, count: int) -> list[Any]:
        """The results that are there after so many wake-ups."""
        assert all(self._wakeups.acquire(timeout=PATIENCE_S) for _ in range(count))
        return self.pool.take_results()

    def threads(self) -> list[threading.Thread]:
        """Those that are alive."""
        return [thread for thread in threading.enumerate() if thread.name.startswith("test")]


def test_every_item_comes_back_once_and_sets_the_wakeup() -> None:
    """A hundred items through three threads give a hundred results and a hundred wake-ups."""
    woken = Woken(lambda item: item * item, threads=3, waiting=97)
    woken.submit(*range(100))
    assert [item * item for item in range(100)] == sorted(woken.gather(100))
    assert woken.pool.busy == 0
    woken.pool.close()


def test_room_shrinks_with_each_item_and_grows_only_when_results_are_taken() -> None:
    """The capacity counts what was submitted and not taken back, whether it runs or not; beyond it, submitting is a bug."""
    woken, go = Woken(lambda _: go.wait(), threads=2, waiting=1), threading.Event()
    assert (woken.pool.capacity, woken.pool.busy) == (3, 0)
    woken.submit(1, 2, 3)
    with pytest.raises(AssertionError, match="beyond the capacity"):
        woken.submit(4)
    go.set()
    assert (woken.pool.capacity, woken.pool.busy) == (0, 3)
    assert 3 == len(woken.gather(3))
    assert (woken.pool.capacity, woken.pool.busy) == (3, 0)
    woken.pool.close()


def test_each_thread_begins_once_before_its_first_item() -> None:
    """What a thread needs for itself is there when its first item comes."""
    begun, ran = list[int](), list[int]()

    def run(_: int) -> None:
        assert threading.get_ident() in begun
        ran.append(threading.get_ident())

    woken = Woken(run, threads=3, begin=lambda: begun.append(threading.get_ident()))
    woken.submit(*range(12))
    assert [None] * 12 == woken.gather(12)
    woken.pool.close()
    assert len(begun) == len(set(begun)) == 3
    assert set(ran) <= set(begun)


def test_what_run_raises_is_raised_again_by_take_results() -> None:
    """An error of the thread reaches the owner's thread, sets the wakeup, and leaves the thread working."""
    woken = Woken(lambda item: 10 // item)
    woken.submit(0)
    with pytest.raises(ZeroDivisionError):
        woken.gather(1)
    woken.submit(5)
    assert woken.gather(1) == [2]
    woken.pool.close()


def test_close_drops_what_waits_and_ends_the_threads() -> None:
    """After close, only the item that was running has run, and no thread is left."""
    started, go, seen = threading.Event(), threading.Event(), list[int]()

    def run(item: int) -> None:
        started.set()
        go.wait()
        seen.append(item)

    woken = Woken(run)
    woken.submit(*range(6))
    assert started.wait(timeout=PATIENCE_S)
    threading.Timer(0.05, go.set).start()
    woken.pool.close()
    assert seen == [0]
    assert not woken.threads()


def test_a_hung_run_does_not_block_close() -> None:
    """Close gives up after its bound, and the thread that hangs is a daemon, which the process may leave behind."""
    started, never = threading.Event(), threading.Event()

    def hang(_: int) -> None:
        started.set()
        never.wait()

    woken = Woken(hang, threads=2)
    woken.submit(0)
    assert started.wait(timeout=PATIENCE_S)
    woken.pool.close(timeout_s=0.05)
    assert [thread.daemon for thread in woken.threads()] == [True]
    never.set()
