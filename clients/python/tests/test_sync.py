"""Locks of threads on a real Redis."""

import concurrent.futures._base
import dis
import signal
import sys
import threading
import traceback
import uuid
from types import FrameType

import pytest

import distlock.sync
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


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_lock_that_is_interrupted_at_any_step_is_released(locks: Locks, name: str) -> None:
    """Ends when the whole is done before the step of its interrupt."""
    for steps in range(5000):
        interrupt = enter_until(locks, name, steps)
        # An interactive session keeps the last traceback, and so the locals of its frames.
        is_acquiring = calls(interrupt)[2:5] == ["lock", "_run", "result"]
        kept = interrupt if is_acquiring else None
        is_done, interrupt = interrupt is None, None
        locks.lock(name, wait=10).release()
        del kept
        if is_done:
            return
    pytest.fail("a free lock is not entered within 5000 steps")


def calls(error: BaseException | None) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error and error.__traceback__)]


def opcode(frame: FrameType) -> str:
    return dis.opname[frame.f_code.co_code[frame.f_lasti]]


def enter_until(locks: Locks, name: str, steps: int) -> KeyboardInterrupt | None:
    """Interrupts as a signal does: between two instructions, here or in the library."""
    files, left = {__file__, distlock.sync.__file__, concurrent.futures._base.__file__}, steps

    def enter() -> None:
        with locks.lock(name):
            pass

    def trace(frame: FrameType, _: str, __: object) -> object:
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines, last = True, False, ""

        def step(frame: FrameType, event: str, _: object) -> object:
            nonlocal last, left
            if event == "opcode":
                # Python takes signals after calls and at the begin of functions.
                is_taken, last = last == "RESUME" or last.startswith("CALL"), opcode(frame)
                left -= is_taken and last != "RETURN_VALUE"
                if left < 0:
                    raise KeyboardInterrupt
            return step

        return step

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        enter()
    except KeyboardInterrupt as interrupt:
        return interrupt
    finally:
        sys.settrace(before)
    return None


def test_the_end_of_a_lease_is_reported_to_a_thread(locks: Locks, name: str) -> None:
    with locks.lock(f"{name}:long") as held:
        assert held.wait_lost(0.01) is None and not held.is_lost
    with pytest.raises(LockLost), locks.lock(name, lease=0.5, renew=False) as guard:
        assert guard.wait_lost(10) is LossCause.EXPIRED and guard.is_lost
