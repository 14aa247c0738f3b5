"""Locks for threads: those of asyncio, on an event loop in a thread of its own."""

import asyncio
import threading
import weakref
from collections.abc import Coroutine
from contextlib import AbstractContextManager, suppress
from typing import Any, TypeVar, Unpack

from redis.asyncio import Redis

from distlock import aio
from distlock.aio import LockOptions, LossCause, Release
from distlock.errors import LockTimeout

T = TypeVar("T")


class Guard(AbstractContextManager["Guard"]):
    """A held lock. `with` releases it, and raises `LockLost` if it was lost meanwhile.

    The finalizer releases as well: an interrupt may prevent that its caller has the guard.
    """

    def __init__(self, guard: aio.Guard, locks: "Locks") -> None:
        self._guard, self._locks = guard, locks
        self.owner = guard.owner
        """For re-entry."""
        self.token = guard.token
        """The fencing token, if one was asked for."""
        weakref.finalize(self, locks._loop.call_soon_threadsafe, guard.begin_release).atexit = False

    @property
    def is_lost(self) -> bool:
        """Whether the lock is lost. Check it before each step that must not happen twice."""
        return self._guard.is_lost

    def wait_lost(self, timeout: float) -> LossCause | None:
        """Returns when the lock is lost; None if it is not within that time."""
        with suppress(TimeoutError):
            return self._locks._run(asyncio.wait_for(self._guard.lost(), timeout))
        return None

    def release(self) -> Release:
        """Releases this hold, once. The last hold of the owner frees the lock."""
        return self._locks._run(self._guard.release())

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

    def lock(self, name: str, **options: Unpack[LockOptions]) -> Guard:
        """Takes the lock, or raises `LockTimeout` if it is held for all of `wait` seconds."""
        return self._run(self._take(name, options))

    def try_lock(self, name: str, **options: Unpack[LockOptions]) -> Guard | None:
        """Takes the lock if it is free; else returns None."""
        with suppress(LockTimeout):
            return self.lock(name, **options)
        return None

    def close(self) -> None:
        """Ends the thread. Locks that are still held end with their leases."""
        self._run(self._locks.close())
        self._run(self._client.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _take(self, name: str, options: LockOptions) -> Guard:
        # Made in the loop: an interrupted caller leaves no guard that has no finalizer.
        return Guard(await self._locks.lock(name, **options), self)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # KeyboardInterrupt, for one: what is waited for must not be taken later.
            future.cancel()
            # The traceback would keep the result, and so the lock.
            del future
            raise
