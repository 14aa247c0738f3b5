"""Locks of threads that are closed, on a real Redis."""

import gc
import sys
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress

import pytest
from conftest import eventually

from distlock import Locks, LockTimeout

LIMIT = 10.0


@pytest.fixture
def name() -> str:
    return f"lock:test:{uuid.uuid4()}"


def ends(call: Callable[[], object]) -> BaseException | None:
    """What it raises; fails if it does not end."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert not thread.is_alive(), "it waits for ever"
    return raised[0] if raised else None


def test_every_call_after_close_ends_and_says_why(server: str, name: str) -> None:
    locks = Locks(server)
    guard = locks.lock(name)

    def outlive() -> None:
        with guard:
            assert ends(locks.close) is None

    late: list[Callable[[], object]] = [
        outlive,
        guard.release,
        lambda: guard.wait_lost(0.01),
        lambda: locks.lock(name),
        lambda: locks.try_lock(name),
    ]
    for call in late:
        error = ends(call)
        assert type(error) is RuntimeError and "closed" in str(error)
    assert ends(locks.close) is None
    assert locks._loop.is_closed(), "its descriptors are left"


def test_close_ends_the_calls_that_wait(server: str, name: str) -> None:
    locks, others = Locks(server), Locks(server)
    held = others.lock(name)
    guard = locks.lock(f"{name}:own")
    errors: list[BaseException] = []

    def wait(call: Callable[[], object]) -> None:
        try:
            call()
        except RuntimeError as error:
            errors.append(error)

    calls = (lambda: locks.lock(name, wait=60), lambda: guard.wait_lost(60))
    threads = [threading.Thread(target=wait, args=[call], daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    eventually(lambda: locks._locks._places._listening)
    assert ends(locks.close) is None
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive(), "it waits for ever"
    assert len(errors) == 2
    assert held.release() is not None
    with suppress(LockTimeout):
        assert others.lock(name), "the wait that was ended has left a hold"
    others.close()


def test_a_guard_that_is_dropped_after_close_is_silent(
    server: str, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    locks = Locks(server)
    guard = locks.lock(name)
    assert ends(locks.close) is None
    del guard
    gc.collect()
    assert not unraisable and not caplog.records
