"""Locks for asyncio. `distlock.Locks` has the same ones for threads."""

import asyncio
import time
import uuid
from collections.abc import Coroutine
from contextlib import suppress
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as NoAnswer

from distlock.errors import HeldByOtherKind, LockError, LockLost, LockTimeout
from distlock.guard import UNANSWERED, Guard, Owner, TokenIssuer
from distlock.places import Place, Places

RESPONSE_TIMEOUT = MAX_MESSAGE_WAIT = 1.0
LEASE_END_MARGIN = 0.002
MAX_TIME = 86_400.0


def lua(name: str) -> str:
    """A script of the repository's `lua/lock/`."""
    return (files("distlock") / "lua" / f"{name}.lua").read_text()


class Locks:
    """Locks in that Redis: one server, or the master that Sentinel names."""

    def __init__(self, client: Redis) -> None:
        self.attempts = self.busy = self.hand_offs = 0
        self._client = client
        self._acquire = client.register_script(lua("redisson_acquire"))
        self._release = client.register_script(lua("redisson_release"))
        self._renew = client.register_script(lua("renew"))
        self._abandon = lua("redisson_abandon")
        self._process = uuid.uuid4()
        self._guards = 0
        self._places = Places(client)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def lock(
        self,
        name: str,
        *,
        wait: float = 0.0,
        lease: float = 30.0,
        renew: bool = True,
        owner: Owner | None = None,
        token_issuer: TokenIssuer | None = None,
    ) -> Guard:
        """Takes the lock, or raises `LockTimeout` if it is held for all of `wait` seconds.

        The lease is renewed at every third of it, unless `renew` is false. `owner` enters again.
        `token_issuer` draws a fencing token. Cancellation leaves nothing: what the server grants
        later is released.
        """
        if not 1 <= len(name.encode()) <= 512:
            raise ValueError("name: must have 1 to 512 bytes")
        if not 0.01 <= lease <= MAX_TIME or not 0 <= wait <= MAX_TIME:
            raise ValueError("lease: 0.01 to 86400 s; wait: 0 to 86400 s")
        if owner is not None and owner.name != name:
            raise ValueError("owner: must be that of a hold of the same lock")
        try:
            guard = await self._enter(name, wait, lease, owner)
        except TimeoutError:
            raise LockTimeout(f"{name} is held by another owner") from None
        try:
            if renew:
                guard._renewal = asyncio.create_task(guard._watch())
            if token_issuer is not None:
                await guard._draw_token(token_issuer)
            # A token counts only if it came within the validity time.
            if guard.is_lost:
                raise LockLost(f"{name} was lost before its guard was handed out")
        except BaseException:
            with suppress(LockError, RedisError):
                await guard.release()
            raise
        return guard

    async def try_lock(self, name: str, **options: Any) -> Guard | None:
        """Takes the lock if it is free; else returns None."""
        try:
            return await self.lock(name, **options)
        except LockTimeout:
            return None

    async def flush(self) -> None:
        """Waits until no release and no abandoned attempt is under way: 60 s if Redis is away."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Ends the subscriptions. Locks that are still held end with their leases."""
        await self.flush()
        await self._places.close()

    async def _enter(self, name: str, wait: float, lease: float, owner: Owner | None) -> Guard:
        """Waits for its turn in this process, and then for the holder."""
        if owner is not None:
            # It does not wait: it holds the lock, or the script refuses it.
            guard = self._guard(name, lease, owner)
            await guard._attempt(0)
            return guard
        deadline = time.monotonic() + wait
        with self._places.use(name) as place:
            async with asyncio.timeout(wait) as turn_timeout, place.turn:
                turn_timeout.reschedule(None)
                return await self._contend(place, deadline, lease)

    async def _contend(self, place: Place, deadline: float, lease: float) -> Guard:
        has_waited = False
        while True:
            place.wake.clear()
            looks, place.looks = place.looks, 0
            guard = self._guard(place.name, lease, None)
            try:
                left = await guard._attempt(looks)
            except UNANSWERED:
                # A waiter outlives a short outage; a newcomer gets the error at once.
                if not has_waited or time.monotonic() >= deadline:
                    raise
                left = 100
            if left is None:
                self.hand_offs += has_waited
                return guard
            has_waited, remaining = True, deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            self._places.listen(place)
            pause = MAX_MESSAGE_WAIT if left < 0 else left / 1000 + LEASE_END_MARGIN
            pause = min(pause, remaining, MAX_MESSAGE_WAIT)
            try:
                async with asyncio.timeout(pause):
                    await place.wake.wait()
            except TimeoutError:
                if pause == remaining:
                    raise

    def _guard(self, name: str, lease: float, owner: Owner | None) -> Guard:
        self._guards += 1
        identity = f"{self._process}:{self._guards}"
        return Guard(self, identity, owner or Owner(identity, name), lease)

    async def _run(self, script: AsyncScript, keys: list[str], args: list[Any]) -> Any:
        """A lost answer costs one repetition, which is safe: the scripts count it once."""
        try:
            try:
                return await self._answered(script(keys, args))
            except UNANSWERED:
                return await self._answered(script(keys, args))
        except ResponseError as error:
            if str(error).startswith("LOST"):
                raise LockLost(str(error)) from error
            if "WRONGTYPE" in str(error):
                raise HeldByOtherKind(str(error)) from error
            raise

    async def _answered(self, asking: Any) -> Any:
        # In a task of its own: while redis-py connects, it swallows the cancellation of a task.
        task = self._background(asking)
        try:
            done, _ = await asyncio.wait({task}, timeout=RESPONSE_TIMEOUT)
            if not done:
                raise NoAnswer(f"Redis did not answer within {RESPONSE_TIMEOUT} s")
            return task.result()
        finally:
            # `flush` does not wait for it: its end is redis-py's.
            task.cancel()
            self._tasks.discard(task)

    def _background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A failure whose caller was cancelled is of no interest.
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return task
