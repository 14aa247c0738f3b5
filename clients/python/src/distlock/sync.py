"""Locks for threads: those of asyncio, on an event loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, suppress
from typing import Any, TypeVar, Unpack
from weakref import finalize

from redis.asyncio import Redis

from distlock import aio
from distlock.errors import LockTimeout

T = TypeVar("T")
CLOSED = "these locks are closed; those that are still held end with their leases"


class Guard(AbstractContextManager["Guard"]):
    """A held lock. `with` releases it, and raises `LockLost` if it was lost meanwhile.

    The finalizer releases as well: an interrupt may prevent that its caller has the guard.
    """

    def __init__(self, guard: aio.Guard, locks: "Locks") -> None:
        self._guard, self._locks = guard, locks
        self.owner, self.token = guard.owner, guard.token
        """For re-entry, and the fencing token, if one was asked for."""
        finalize(self, guard.release_soon, locks._loop).atexit = False

    @property
    def is_lost(self) -> bool:
        """Whether the lock is lost. Check it before each step that must not happen twice."""
        return self._guard.is_lost

    def wait_lost(self, timeout: float) -> aio.LossCause | None:
        """Returns when the lock is lost; None if it is not within that time."""
        with suppress(TimeoutError):
            return self._locks._run(lambda: asyncio.wait_for(self._guard.lost(), timeout))
        return None

    def release(self) -> aio.Release:
        """Releases this hold, once. The last hold of the owner frees the lock."""
        return self._locks._run(self._guard.release)

    def __exit__(self, *error: Any) -> None:
        self._locks._run(lambda: self._guard.__aexit__(*error))


class Locks:
    """Locks in the Redis of that address. A process that forks makes them after the fork."""

    def __init__(self, url: str, **redis: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="distlock")
        self._thread.start()
        self._client = Redis.from_url(url, **redis)
        self._locks = aio.Locks(self._client)
        self._is_closed = False

    def lock(self, name: str, **options: Unpack[aio.LockOptions]) -> Guard:
        """Takes the lock, or raises `LockTimeout` if it is held for all of `wait` seconds."""
        return self._run(lambda: self._take(name, options))

    def try_lock(self, name: str, **options: Unpack[aio.LockOptions]) -> Guard | None:
        """Takes the lock if it is free; else returns None."""
        with suppress(LockTimeout):
            return self.lock(name, **options)
        return None

    def close(self) -> None:
        """Ends the thread, and calls that wait. Locks that are still held end with their leases.

        Later calls raise `RuntimeError`, except `close`. `is_lost` still reads the clock.
        """
        if not self._is_closed:
            self._is_closed = True
            ending = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
            ending.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        # Calls that wait, and renewals; neither releases nor what undoes attempts.
        tasks = asyncio.all_tasks() - self._locks._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.wait({asyncio.create_task(asyncio.sleep(0)), *tasks}, timeout=5)
        await self._locks.close()
        await self._client.aclose()

    async def _take(self, name: str, options: aio.LockOptions) -> Guard:
        # Made in the loop: an interrupted caller leaves no guard that has no finalizer.
        return Guard(await self._locks.lock(name, **options), self)

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._is_closed:
            raise RuntimeError(CLOSED)
        future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            # What is asked for after the begin of `close` may not be ended by it.
            if self._is_closed:
                raise CancelledError
            return future.result()
        except BaseException as error:
            # KeyboardInterrupt, for one: what is waited for must not be taken later.
            future.cancel()
            # The traceback would keep the result, and so the lock.
            del future
            if isinstance(error, CancelledError):
                raise RuntimeError(CLOSED) from None
            raise
