"""A held lock: its requests, its validity time, its renewal, and how it ends."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from redis.exceptions import ConnectionError, RedisError
from redis.exceptions import TimeoutError as NoAnswer

from distlock.errors import LockError, LockLost
from distlock.places import beside

if TYPE_CHECKING:
    from distlock.aio import Locks

LATCH_MS, ABANDON_MS = 10_000, 60_000
"""How long the server remembers a re-entry or a release, and an abandoned attempt."""
UNANSWERED = (ConnectionError, NoAnswer)
"""After these the server may have acted."""
WAKE_ONE, ABSENT = "0", -2


class Release(Enum):
    """How a release ended."""

    RELEASED = "released"
    HELD_BY_OTHER = "held_by_other"
    GONE = "gone"


class LossCause(Enum):
    """Why a lock is lost: not renewed in time, or taken away as the server says."""

    EXPIRED = "expired"
    TAKEN = "taken"


class TokenIssuer(Protocol):
    """Draws fencing tokens, which rise for ever, whatever happens to Redis."""

    async def next(self, name: str) -> int: ...


@dataclass(eq=False)
class Owner:
    """The owner of a lock, for re-entry. All its holds have one fencing token."""

    text: str
    name: str
    token: int | None = None
    drawing: asyncio.Lock = field(default_factory=asyncio.Lock)


class Guard:
    """A held lock. `async with` releases it, and raises `LockLost` if it was lost meanwhile."""

    def __init__(self, locks: "Locks", identity: str, owner: Owner, lease: float) -> None:
        self.owner = owner
        self.token: int | None = None
        """The fencing token, if one was asked for."""
        self.valid_until = 0.0
        """By `time.monotonic()`: until when the lock is valid, unless it is renewed."""
        self._locks, self._id, self._lease = locks, identity, lease
        self._lease_ms = round(lease * 1000)
        self._is_reentry = int(owner.text != identity)
        self._cause: LossCause | None = None
        self._taken = asyncio.Event()
        self._renewal: asyncio.Task[None] | None = None
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
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._taken.wait()
        return cause

    async def release(self) -> Release:
        """Releases this hold, once. The last hold of the owner frees the lock."""
        if self._release is None:
            if self._renewal is not None:
                self._renewal.cancel()
            self._release = self._locks._background(self._free())
        return await asyncio.shield(self._release)

    async def __aenter__(self) -> "Guard":
        return self

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
            keys = [name, self._key("lock_latch")]
            left: int | None = await locks._run(locks._acquire, keys, args)
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
        end, pause = time.monotonic() + min(self._lease, ABANDON_MS / 1000), 0.05
        while time.monotonic() < end:
            with suppress(*UNANSWERED):
                # By its text: a server that hangs now could not ask for it later.
                await locks._answered(locks._client.eval(locks._abandon, 3, *keys, *args))
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)

    async def _draw_token(self, issuer: TokenIssuer) -> None:
        async with self.owner.drawing:
            if self.owner.token is None:
                self.owner.token = await issuer.next(self.owner.name)
        self.token = self.owner.token

    async def _watch(self) -> None:
        """Renews at every third of the lease; without an answer again after a thirtieth."""
        locks, pause, keys = self._locks, self._lease / 3, [self.owner.name]
        while True:
            await asyncio.sleep(pause)
            if self.is_lost:
                return
            sent, pause = time.monotonic(), self._lease / 3
            try:
                answers = await locks._run(locks._renew, keys, [self.owner.text, self._lease_ms])
            except (LockError, RedisError):
                pause = self._lease / 30
                continue
            if answers[0] == 0 and not self.is_lost:
                self._cause = LossCause.TAKEN
                self._taken.set()
            elif not self.is_lost:
                self._extend(sent)

    def _extend(self, sent: float) -> None:
        """Counts from the sending of a granted request, with a margin for clocks."""
        self.valid_until = sent + self._lease - (self._lease / 100 + 0.002)

    def _key(self, kind: str) -> str:
        """A key of this acquisition alone."""
        return beside(kind, self.owner.name) + ":" + self._id
