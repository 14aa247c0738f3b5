"""Locks of threads on a real Redis."""

import signal
import threading
import uuid

import pytest

from distlock import LockLost, Locks, LockTimeout, LossCause, Release


@pytest.fixture
def locks(server: str) -> Locks:
    made = Locks(server)
    yield made
    made.close()


@pytest.fixture
def name() -> str:
    return f"lock:test:{uuid.uuid4()}"


def test_threads_enter_one_at_a_time(locks: Locks, name: str) -> None:
    inside, counted = threading.Lock(), []

    def enter() -> None:
        for _ in range(25):
            with locks.lock(name, wait=30):
                assert inside.acquire(blocking=False), "two threads are inside"
                counted.append(1)
                inside.release()

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counted) == 100


def test_a_held_lock_is_refused_and_a_released_one_is_not(locks: Locks, name: str) -> None:
    guard = locks.lock(name)
    assert locks.try_lock(name) is None
    with pytest.raises(LockTimeout):
        locks.lock(name, wait=0.05)
    again = locks.lock(name, owner=guard.owner)
    assert again.release() is Release.RELEASED
    assert guard.release() is Release.RELEASED
    assert locks.try_lock(name).release() is Release.RELEASED


def test_a_lock_that_is_taken_as_its_wait_is_interrupted_is_released(
    locks: Locks, name: str
) -> None:
    take, interrupted, finished = locks._locks.lock, threading.Event(), threading.Event()

    async def take_late(*words: object, **options: object) -> object:
        guard = await take(*words, **options)
        locks._loop.call_soon(finished.set)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        assert interrupted.wait(10), "the wait is not interrupted"
        return guard

    locks._locks.lock = take_late
    with pytest.raises(KeyboardInterrupt):
        locks.lock(name)
    interrupted.set()
    locks._locks.lock = take
    assert finished.wait(10)
    locks.lock(name, wait=10).release()


def test_the_end_of_a_lease_is_reported_to_a_thread(locks: Locks, name: str) -> None:
    with locks.lock(f"{name}:long") as held:
        assert held.wait_lost(0.01) is None and not held.is_lost
    with pytest.raises(LockLost), locks.lock(name, lease=0.5, renew=False) as guard:
        assert guard.wait_lost(10) is LossCause.EXPIRED and guard.is_lost
