"""A held lock: its validity time, its renewal, and how it ends."""

import asyncio
import time
from enum import Enum
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from distlock.errors import LockError, LockLost
from distlock.scripts import RENEW

if TYPE_CHECKING:
    from distlock.aio import Locks


class Release(Enum):
    """How a release ended."""

    RELEASED = "released"
    HELD_BY_OTHER = "held_by_other"
    GONE = "gone"


class LossCause(Enum):
    """Why a lock is lost: not renewed in time, or taken away as the server says."""

    EXPIRED = "expired"
    TAKEN = "taken"


class Owner:
    """The owner of a lock, for re-entry. All its holds have one fencing token."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self.token: int | None = None
        self.drawing = asyncio.Lock()


class Guard:
    """A held lock. `async with` releases it, and raises `LockLost` if it was lost meanwhile."""

    def __init__(self, locks: "Locks", owner: Owner, request: str, lease: float) -> None:
        self._locks = locks
        self.owner = owner
        self.request = request
        self.lease = lease
        self.valid_until = 0.0
        """By `time.monotonic()`: until when the lock is valid, unless it is renewed."""
        self._cause: LossCause | None = None
        self._taken = asyncio.Event()
        self._renewal: asyncio.Task[None] | None = None
        self._release: asyncio.Task[Release] | None = None

    @property
    def token(self) -> int | None:
        """The fencing token, if one was asked for."""
        return self.owner.token

    @property
    def loss_cause(self) -> LossCause | None:
        """Reads the clock, so a process that was frozen knows at its first look. Final."""
        if self._cause is None and time.monotonic() >= self.valid_until:
            self._cause = LossCause.EXPIRED
        return self._cause

    @property
    def is_lost(self) -> bool:
        """Whether the lock is lost. Check it before each step that must not happen twice."""
        return self.loss_cause is not None

    async def lost(self) -> LossCause:
        """Returns when the lock is lost."""
        while (cause := self.loss_cause) is None:
            try:
                async with asyncio.timeout(self.valid_until - time.monotonic()):
                    await self._taken.wait()
            except TimeoutError:
                pass
        return cause

    async def release(self) -> Release:
        """Releases this hold, once. The last hold of the owner frees the lock."""
        if self._release is None:
            if self._renewal is not None:
                self._renewal.cancel()
            self._release = self._locks._background(self._locks._release(self))
        return await asyncio.shield(self._release)

    async def __aenter__(self) -> "Guard":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        is_lost = self.is_lost
        await self.release()
        if is_lost and kind is None:
            raise LockLost("the lock was lost before the work was done")

    def _extend(self, sent: float) -> None:
        """Counts from the sending of a granted request, with a margin for clocks."""
        self.valid_until = sent + self.lease - (self.lease / 100 + 0.002)

    def _renew(self) -> None:
        self._renewal = asyncio.create_task(self._watchdog())

    async def _watchdog(self) -> None:
        """Renews at every third of the lease; without an answer again after a thirtieth."""
        pause, args = self.lease / 3, [self.owner.text, round(self.lease * 1000)]
        while True:
            await asyncio.sleep(pause)
            if self.is_lost or self._release is not None:
                return
            sent, pause = time.monotonic(), self.lease / 3
            try:
                answers = await self._locks._call(RENEW, [self.owner.name], args)
            except (LockError, RedisError):
                pause = self.lease / 30
                continue
            if answers[0] == 0 and not self.is_lost:
                self._cause = LossCause.TAKEN
                self._taken.set()
            elif not self.is_lost:
                self._extend(sent)
