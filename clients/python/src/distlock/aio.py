"""Locks for asyncio. `distlock.Locks` has the same ones for threads."""

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import redis.exceptions
from redis.asyncio import Redis
from redis.exceptions import RedisError

from distlock.errors import LockError, LockLost, LockTimeout
from distlock.guard import Guard, Owner, Release
from distlock.scripts import ABANDON, ACQUIRE, RELEASE, UNANSWERED, Script, prefixed
from distlock.signals import Channel, Signals

MAX_MESSAGE_WAIT = 1.0
MAX_LEASE = 86_400.0
WAKE_ONE = "0"
ABSENT = -2
LATCH_MS, ABANDON_MS = 10_000, 60_000
"""How long the server remembers a re-entry or a release, and an abandoned attempt."""


class TokenIssuer(Protocol):
    """Draws fencing tokens, which rise for ever, whatever happens to Redis."""

    async def next(self, name: str) -> int: ...


def held(name: str) -> LockTimeout:
    return LockTimeout(f"{name} is held by another owner")


class Acquisition:
    """What `lock` returns: awaited it is a guard, and `async with` releases that guard."""

    def __init__(self, acquire: Callable[[], Coroutine[Any, Any, Guard]]) -> None:
        self._acquire = acquire

    def __await__(self) -> Generator[Any, None, Guard]:
        return self._acquire().__await__()

    async def __aenter__(self) -> Guard:
        self._guard = await self
        return self._guard

    async def __aexit__(self, *error: Any) -> None:
        await self._guard.__aexit__(*error)


class Locks:
    """Locks in that Redis: one server, or the master that Sentinel names."""

    def __init__(
        self,
        client: Redis,
        *,
        token_issuer: TokenIssuer | None = None,
        response_timeout: float = 1.0,
    ) -> None:
        self.attempts = self.busy = self.hand_offs = 0
        self._client = client
        self._token_issuer = token_issuer
        self._response_timeout = response_timeout
        self._process = uuid.uuid4()
        self._owners = 0
        self._signals = Signals(client)
        self._queues: dict[str, list[Any]] = {}
        self._give_way: dict[str, int] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def lock(
        self,
        name: str,
        *,
        wait: float = 0.0,
        lease: float = 30.0,
        renew: bool = True,
        owner: Owner | None = None,
        fenced: bool = False,
    ) -> Acquisition:
        """Takes the lock, or raises `LockTimeout` if it is held for all of `wait` seconds.

        The lease is renewed at every third of it, unless `renew` is false. `owner` enters again.
        Cancellation leaves nothing: what the server grants later is released.
        """
        if not 1 <= len(name.encode()) <= 512:
            raise ValueError("name: must have 1 to 512 bytes")
        if not 0.01 <= lease <= MAX_LEASE or not 0 <= wait <= MAX_LEASE:
            raise ValueError("lease: 0.01 to 86400 s; wait: 0 to 86400 s")
        if owner is not None and owner.name != name:
            raise ValueError("owner: must be that of a hold of the same lock")
        if fenced and self._token_issuer is None:
            raise ValueError("fenced: needs a token issuer")
        return Acquisition(partial(self._lock, name, wait, (lease, renew, fenced), owner))

    async def try_lock(self, name: str, **options: Any) -> Guard | None:
        """Takes the lock if it is free; else returns None."""
        try:
            return await self.lock(name, **options)
        except LockTimeout:
            return None

    async def flush(self) -> None:
        """Waits until no release and no abandoned attempt is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Ends the subscriptions. Locks that are still held end with their leases."""
        await self.flush()
        if self._signals.task is not None:
            self._signals.task.cancel()
            await asyncio.wait({self._signals.task})

    async def _lock(
        self, name: str, wait: float, terms: tuple[float, bool, bool], owner: Owner | None
    ) -> Guard:
        lease, renew, fenced = terms
        deadline = time.monotonic() + wait
        # One task per name asks the server; the others queue here in the order of arrival.
        queue = self._queues.setdefault(name, [asyncio.Lock(), 0])
        queue[1] += 1
        try:
            if owner is None:
                try:
                    async with asyncio.timeout(wait):
                        await queue[0].acquire()
                except TimeoutError:
                    raise held(name) from None
            try:
                guard = await self._enter(name, deadline, lease, owner)
            finally:
                if owner is None:
                    queue[0].release()
        finally:
            queue[1] -= 1
            if queue[1] == 0:
                del self._queues[name]
        if renew:
            guard._renew()
        try:
            if fenced and self._token_issuer is not None:
                await self._draw_token(guard, self._token_issuer)
            # A token counts only if it came within the validity time.
            if guard.is_lost:
                raise LockLost(f"{name} was lost before its guard was handed out")
        except BaseException:
            with suppress(LockError, RedisError):
                await guard.release()
            raise
        return guard

    async def _enter(self, name: str, deadline: float, lease: float, owner: Owner | None) -> Guard:
        channel_name = prefixed("redisson_lock__channel", name)
        channel: Channel | None = None
        if owner is None and channel_name in self._signals.channels:
            channel = self._signals.enter(channel_name)
        has_waited = False
        try:
            while True:
                if channel is not None:
                    channel.wake.clear()
                guard = Guard(self, owner or self._fresh_owner(name), str(uuid.uuid4()), lease)
                try:
                    left = await self._attempt(guard, owner is not None, deadline)
                except UNANSWERED:
                    # A waiter outlives a short outage; a newcomer gets the error at once.
                    if owner is not None or not has_waited or time.monotonic() >= deadline:
                        raise
                    left = 100
                if left is None:
                    self.hand_offs += has_waited
                    return guard
                if time.monotonic() >= deadline:
                    raise held(name)
                has_waited = True
                channel = channel or self._signals.enter(channel_name)
                pause = MAX_MESSAGE_WAIT if left < 0 else min(MAX_MESSAGE_WAIT, left / 1000 + 0.002)
                end = min(time.monotonic() + pause, deadline)
                try:
                    async with asyncio.timeout(end - time.monotonic()):
                        await channel.wake.wait()
                except TimeoutError:
                    if end == deadline:
                        raise held(name) from None
        finally:
            if channel is not None:
                self._signals.leave(channel_name, channel)

    async def _attempt(self, guard: Guard, reenters: bool, deadline: float) -> int | None:
        """Asks the server once; the rest of the holder's lease in ms if the lock is busy."""
        looks = 0 if reenters else self._give_way.pop(guard.owner.name, 0)
        for _ in range(looks if time.monotonic() < deadline else 0):
            rest: int = await self._answered(self._client.pttl(guard.owner.name))
            if rest != ABSENT:
                return rest
        self.attempts += 1
        asking = self._background(self._acquire(guard, reenters))
        try:
            left: int | None = await asyncio.shield(asking)
        except asyncio.CancelledError:
            self._background(self._undo(asking, guard, reenters))
            raise
        except UNANSWERED:
            self._background(self._abandon(guard, reenters))
            raise
        self.busy += left is not None
        return left

    async def _acquire(self, guard: Guard, reenters: bool) -> int | None:
        keys = [guard.owner.name, self._acquire_latch(guard)]
        args = [round(guard.lease * 1000), guard.owner.text, int(reenters), LATCH_MS]
        sent = time.monotonic()
        left: int | None = await self._call(ACQUIRE, keys, args)
        guard._extend(sent)
        return left

    async def _release(self, guard: Guard) -> Release:
        name = guard.owner.name
        channel_name = prefixed("redisson_lock__channel", name)
        latch = prefixed("redisson_unlock_latch", name) + ":" + guard.request
        lease_ms = round(guard.lease * 1000)
        args = [WAKE_ONE, lease_ms, guard.owner.text, LATCH_MS, "PUBLISH"]
        answer = await self._call(RELEASE, [name, channel_name, latch], args)
        channel = self._signals.channels.get(channel_name)
        others = answer - 1 - (channel is not None and channel.is_live)
        if others > 0:
            # The quickest process would have it again and again: it looks before it asks.
            self._give_way[name] = min(others, 2)
            asyncio.get_running_loop().call_later(0.25, self._give_way.pop, name, None)
        if answer >= 0:
            return Release.RELEASED
        return Release.GONE if answer == -1 else Release.HELD_BY_OTHER

    async def _undo(self, asking: asyncio.Task[int | None], guard: Guard, reenters: bool) -> None:
        """Gives back what an attempt brings whose caller has gone."""
        try:
            if await asking is None:
                # No release: one without an answer would be abandoned too, and both count down.
                await self._abandon(guard, reenters)
        except UNANSWERED:
            await self._abandon(guard, reenters)
        except (LockError, RedisError):
            pass

    async def _abandon(self, guard: Guard, reenters: bool) -> None:
        """Undoes an attempt without an answer, or keeps it from being carried out later."""
        name = guard.owner.name
        keys = [name, prefixed("redisson_lock__channel", name), self._acquire_latch(guard)]
        args = [WAKE_ONE, guard.owner.text, str(int(reenters)), str(ABANDON_MS), "PUBLISH"]
        end, pause = time.monotonic() + guard.lease, 0.05
        while time.monotonic() < end:
            try:
                # By its text: a server that hangs now could not ask for it later.
                await self._answered(self._client.eval(ABANDON.text, len(keys), *keys, *args))
                return
            except UNANSWERED:
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)
            except RedisError:
                return

    async def _draw_token(self, guard: Guard, issuer: TokenIssuer) -> None:
        async with guard.owner.drawing:
            if guard.owner.token is None:
                guard.owner.token = await issuer.next(guard.owner.name)

    async def _call(self, script: Script, keys: list[str], args: list[Any]) -> Any:
        """A lost answer costs one repetition, which is safe: the scripts count it once."""
        try:
            return await self._answered(script.call(self._client, keys, args))
        except UNANSWERED:
            return await self._answered(script.call(self._client, keys, args))

    async def _answered(self, asking: Any) -> Any:
        # In a task of its own: while redis-py connects, it swallows the cancellation of a task.
        task = self._background(asking)
        done, _ = await asyncio.wait({task}, timeout=self._response_timeout)
        if not done:
            task.cancel()
            text = f"Redis did not answer within {self._response_timeout} s"
            raise redis.exceptions.TimeoutError(text)
        return task.result()

    def _fresh_owner(self, name: str) -> Owner:
        self._owners += 1
        return Owner(f"{self._process}:{self._owners}", name)

    def _acquire_latch(self, guard: Guard) -> str:
        return prefixed("redisson_lock_latch", guard.owner.name) + ":" + guard.request

    def _background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # A failure whose caller was cancelled is of no interest.
            task.exception()
