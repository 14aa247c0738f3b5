"""Locks for threads: those of asyncio, on an event loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from redis.asyncio import Redis

from distlock import aio
from distlock.guard import Guard as AsyncGuard
from distlock.guard import LossCause, Release

T = TypeVar("T")


class Guard:
    """A held lock. `with` releases it, and raises `LockLost` if it was lost meanwhile."""

    def __init__(self, guard: AsyncGuard, locks: "Locks") -> None:
        self._guard, self._locks = guard, locks
        self.owner = guard.owner
        """For re-entry."""
        self.token = guard.token
        """The fencing token, if one was asked for."""

    @property
    def is_lost(self) -> bool:
        """Whether the lock is lost. Check it before each step that must not happen twice."""
        return self._guard.is_lost

    def wait_lost(self, timeout: float) -> LossCause | None:
        """Returns when the lock is lost; None if it is not within that time."""
        try:
            return self._locks._run(asyncio.wait_for(self._guard.lost(), timeout))
        except TimeoutError:
            return None

    def release(self) -> Release:
        """Releases this hold, once. The last hold of the owner frees the lock."""
        return self._locks._run(self._guard.release())

    def __enter__(self) -> "Guard":
        return self

    def __exit__(self, *error: Any) -> None:
        self._locks._run(self._guard.__aexit__(*error))


class Locks:
    """Locks in the Redis of that address. A process that forks makes them after the fork."""

    def __init__(self, url: str, **redis: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="distlock")
        self._thread.start()
        self._client = Redis.from_url(url, **redis)
        self._locks = aio.Locks(self._client)

    def lock(self, name: str, **options: Any) -> Guard:
        """Takes the lock, or raises `LockTimeout`. `distlock.aio.Locks.lock` has the options."""
        return Guard(self._run(self._locks.lock(name, **options)), self)

    def try_lock(self, name: str, **options: Any) -> Guard | None:
        """Takes the lock if it is free; else returns None."""
        guard = self._run(self._locks.try_lock(name, **options))
        return None if guard is None else Guard(guard, self)

    def close(self) -> None:
        """Ends the thread. Locks that are still held end with their leases."""
        self._run(self._locks.close())
        self._run(self._client.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        # Either the work has brought its result first, or its caller has left.
        first = threading.Lock()

        async def carry() -> T:
            brought = await work
            if not first.acquire(blocking=False) and isinstance(brought, AsyncGuard):
                await brought.release()
            return brought

        future = asyncio.run_coroutine_threadsafe(carry(), self._loop)
        try:
            return future.result()
        except BaseException:
            # KeyboardInterrupt, for one: what is waited for must not be taken later.
            if first.acquire(blocking=False):
                future.cancel()
            elif isinstance(brought := future.result(), AsyncGuard):
                asyncio.run_coroutine_threadsafe(brought.release(), self._loop)
            raise
