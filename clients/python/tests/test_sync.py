"""Locks of threads on a real Redis."""

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


def test_the_end_of_a_lease_is_reported_to_a_thread(locks: Locks, name: str) -> None:
    with pytest.raises(LockLost), locks.lock(name, lease=0.5, renew=False) as guard:
        assert guard.wait_lost(0.01) is None and not guard.is_lost
        assert guard.wait_lost(10) is LossCause.EXPIRED and guard.is_lost
