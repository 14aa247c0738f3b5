"""Locks for asyncio. `distlock.Locks` has the same ones for threads."""

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from enum import Enum
from importlib.resources import files
from itertools import count
from typing import Any, Protocol, TypedDict, Unpack

from redis import exceptions
from redis.asyncio import Redis
from redis.commands.core import AsyncScript

from distlock.errors import HeldByOtherKind, LockError, LockLost, LockTimeout
from distlock.places import RECONNECT_PAUSE, Place, Places, beside, is_set_within

RESPONSE_TIMEOUT = MAX_MESSAGE_WAIT = 1.0
LEASE_END_MARGIN, MAX_TIME, WAKE_ONE, ABSENT = 0.002, 86_400.0, "0", -2
LATCH_MS, ABANDON_MS = 10_000, 60_000
"""How long the server remembers a re-entry or a release, and an abandoned attempt."""
UNANSWERED = (exceptions.ConnectionError, exceptions.TimeoutError)
"""After these the server may have acted."""


class Release(Enum):
    """How a release ended."""

    RELEASED, HELD_BY_OTHER, GONE = "released", "held_by_other", "gone"


class LossCause(Enum):
    """Why a lock is lost: not renewed in time, or taken away as the server says."""

    EXPIRED, TAKEN = "expired", "taken"


class TokenIssuer(Protocol):
    """Draws fencing tokens from 1 on, which rise for ever, whatever happens to Redis."""

    async def next(self, name: str) -> int: ...


class Owner:
    """The owner of a lock, for re-entry. All its holds have one fencing token."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name, self.drawing = text, name, asyncio.Lock()
        self.token: int | None = None


class LockOptions(TypedDict, total=False):
    """Options of one acquisition. Times are in seconds."""

    wait: float
    """How long to wait for the holder: 0 by default."""
    lease: float
    """How long the server keeps the lock of a holder that is silent: 30 by default."""
    renew: bool
    """Whether the lease is renewed at every third of it: true by default."""
    owner: Owner | None
    """Enters again: the owner of a guard of the same lock."""
    token_issuer: TokenIssuer | None
    """Draws a fencing token: without it there is none."""


class Guard(AbstractAsyncContextManager["Guard"]):
    """A held lock. `async with` releases it, and raises `LockLost` if it was lost meanwhile."""

    def __init__(self, locks: "Locks", name: str, lease: float, owner: Owner | None) -> None:
        self._id = next(locks._ids)
        self.owner = owner or Owner(self._id, name)
        self.token: int | None = None
        """The fencing token, if one was asked for."""
        self.valid_until = 0.0
        """By `time.monotonic()`: until when the lock is valid, unless it is renewed."""
        self._locks, self._lease, self._lease_ms = locks, lease, round(lease * 1000)
        self._is_reentry, self._taken = int(owner is not None), asyncio.Event()
        self._cause: LossCause | None = None
        self._end_renewal: Callable[[], Any] = lambda: None
        self._release: asyncio.Task[Release] | None = None

    @property
    def loss_cause(self) -> LossCause | None:
        """Reads the clock, so a process that was frozen knows at its first look. Final.

        None after a release in time.
        """
        if self._cause is None and self._release is None and time.monotonic() >= self.valid_until:
            self._cause = LossCause.EXPIRED
        return self._cause

    @property
    def is_lost(self) -> bool:
        """Whether the lock is lost. Check it before each step that must not happen twice."""
        return self.loss_cause is not None

    async def lost(self) -> LossCause:
        """Returns when the lock is lost, and never if it is released before."""
        while (cause := self.loss_cause) is None:
            left = self.valid_until - time.monotonic() if self._release is None else None
            await is_set_within(self._taken, left)
        return cause

    async def release(self) -> Release:
        """Releases this hold, once. The last hold of the owner frees the lock."""
        return await asyncio.shield(self.begin_release())

    def begin_release(self) -> asyncio.Task[Release]:
        """Releases in the background, although its caller ends. `Locks.flush` waits for it."""
        if self._release is None:
            self._end_renewal()
            self._release = self._locks._background(self._free())
        return self._release

    def release_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begins the release from another thread, unless the loop is closed."""
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self.begin_release)

    async def __aexit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        is_lost = self.is_lost
        await self.release()
        if is_lost and kind is None:
            raise LockLost("the lock was lost before the work was done")

    async def _attempt(self, looks: int) -> int | None:
        """Asks the server once; the rest of the holder's lease in ms if the lock is busy."""
        locks, name = self._locks, self.owner.name
        for _ in range(looks):
            rest: int = await locks._answered(locks._client.pttl(name))
            if rest != ABSENT:
                return rest
        locks.attempts += 1
        self._extend(time.monotonic())
        args = [self._lease_ms, self.owner.text, self._is_reentry, LATCH_MS]
        try:
            left: int | None = await locks._run(locks._take, [name, self._key("lock_latch")], args)
        except (asyncio.CancelledError, *UNANSWERED):
            locks._background(self._abandon())
            raise
        locks.busy += left is not None
        return left

    async def _free(self) -> Release:
        locks, name = self._locks, self.owner.name
        args = [WAKE_ONE, self._lease_ms, self.owner.text, LATCH_MS, "PUBLISH"]
        with locks._places.use(name) as place:
            keys = [name, place.channel, self._key("unlock_latch")]
            answer: int = await locks._run(locks._release, keys, args)
            # The quickest process would have it again and again: it looks before it asks.
            place.looks = min(answer - 1 - place.is_live, 2)
        return {-1: Release.GONE, -2: Release.HELD_BY_OTHER}.get(answer, Release.RELEASED)

    async def _abandon(self) -> None:
        """Undoes an attempt without an answer, or keeps it from being carried out later.

        Tries for the time of the lease, and 60 s at most.
        """
        locks, name = self._locks, self.owner.name
        keys = [name, beside("lock__channel", name), self._key("lock_latch")]
        args = [WAKE_ONE, self.owner.text, str(self._is_reentry), str(ABANDON_MS), "PUBLISH"]
        end = time.monotonic() + min(self._lease, ABANDON_MS / 1000)
        while time.monotonic() < end:
            with suppress(*UNANSWERED):
                # By its text: a server that hangs now could not ask for it later.
                await locks._answered(locks._client.eval(lua("redisson_abandon"), 3, *keys, *args))
                return
            await asyncio.sleep(RECONNECT_PAUSE)

    async def _watch(self) -> None:
        """Renews at every third of the lease; without an answer again after a thirtieth."""
        await asyncio.sleep(self._lease / 3)
        while not self.is_lost:
            sent, pause = time.monotonic(), self._lease / 30
            with suppress(LockError, exceptions.RedisError):
                args = [self.owner.text, self._lease_ms]
                [is_renewed] = await self._locks._run(self._locks._renew, [self.owner.name], args)
                pause = self._lease / 3
                if not self.is_lost and is_renewed:
                    self._extend(sent)
                elif not self.is_lost:
                    self._cause = LossCause.TAKEN
                    self._taken.set()
            await asyncio.sleep(pause)

    def _extend(self, sent: float) -> None:
        """Counts from the sending of a granted request, with a margin for clocks."""
        self.valid_until = sent + self._lease - (self._lease / 100 + 0.002)

    def _key(self, kind: str) -> str:
        """A key of this acquisition alone."""
        return beside(kind, self.owner.name) + ":" + self._id


def lua(name: str) -> str:
    """A script of the repository's `lua/lock/`."""
    return (files("distlock") / "lua" / f"{name}.lua").read_text()


class Locks:
    """Locks in that Redis: one server, or the master that Sentinel names."""

    def __init__(self, client: Redis) -> None:
        self.attempts = self.busy = self.hand_offs = 0
        self._client = client
        scripts = ("redisson_acquire", "redisson_release", "renew")
        self._take, self._release, self._renew = map(client.register_script, map(lua, scripts))
        self._ids = map(f"{uuid.uuid4()}:{{}}".format, count(1))
        self._places = Places(client)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def lock(self, name: str, **options: Unpack[LockOptions]) -> Guard:
        """Takes the lock, or raises `LockTimeout` if it is held for all of `wait` seconds.

        Cancellation leaves nothing: what the server grants later is released.
        """
        wait, lease = options.get("wait", 0.0), options.get("lease", 30.0)
        owner, issuer = options.get("owner"), options.get("token_issuer")
        if not (1 <= len(name.encode()) <= 512 and 0.01 <= lease <= MAX_TIME >= wait >= 0):
            raise ValueError("name: 1 to 512 bytes; lease: 0.01 to 86400 s; wait: 0 to 86400 s")
        if owner is not None and owner.name != name:
            raise ValueError("owner: must be that of a hold of the same lock")
        try:
            guard = await self._enter(name, wait, lease, owner)
        except TimeoutError:
            raise LockTimeout(f"{name} is held by another owner") from None
        try:
            if options.get("renew", True):
                guard._end_renewal = asyncio.create_task(guard._watch()).cancel
            if issuer is not None:
                async with guard.owner.drawing:
                    guard.token = guard.owner.token = guard.owner.token or await issuer.next(name)
            # A token counts only if it came within the validity time.
            if guard.is_lost:
                raise LockLost(f"{name} was lost before its guard was handed out")
        except BaseException:
            with suppress(LockError, exceptions.RedisError):
                await guard.release()
            raise
        return guard

    async def try_lock(self, name: str, **options: Unpack[LockOptions]) -> Guard | None:
        """Takes the lock if it is free; else returns None."""
        with suppress(LockTimeout):
            return await self.lock(name, **options)
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
            guard = Guard(self, name, lease, owner)
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
            guard = Guard(self, place.name, lease, None)
            try:
                left = await guard._attempt(looks)
            except UNANSWERED:
                # A waiter outlives a short outage; a newcomer gets the error at once. It waits for
                # its subscription or for a second: each attempt leaves one that undoes it.
                if not has_waited or time.monotonic() >= deadline:
                    raise
                left = -1
            if left is None:
                self.hand_offs += has_waited
                return guard
            has_waited, remaining = True, deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            self._places.listen(place)
            pause = MAX_MESSAGE_WAIT if left < 0 else left / 1000 + LEASE_END_MARGIN
            pause = min(pause, remaining, MAX_MESSAGE_WAIT)
            if not await is_set_within(place.wake, pause) and pause == remaining:
                raise TimeoutError

    async def _run(self, script: AsyncScript, keys: list[str], args: list[Any]) -> Any:
        """A lost answer costs one repetition, which is safe: the scripts count it once."""
        try:
            with suppress(*UNANSWERED):
                return await self._answered(script(keys, args))
            return await self._answered(script(keys, args))
        except exceptions.ResponseError as error:
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
                raise exceptions.TimeoutError(f"Redis did not answer within {RESPONSE_TIMEOUT} s")
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
