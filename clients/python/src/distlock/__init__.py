"""Distributed locks in Redis that Redisson's `RLock` and the Rust library `distlock` share.

`distlock.Locks` is for threads and `distlock.aio.Locks` for asyncio. Both have the same calls.
"""

from distlock.errors import HeldByOtherKind, LockError, LockLost, LockTimeout
from distlock.guard import LossCause, Owner, Release
from distlock.sync import Guard, Locks

__all__ = [
    "Guard",
    "HeldByOtherKind",
    "LockError",
    "LockLost",
    "LockTimeout",
    "Locks",
    "LossCause",
    "Owner",
    "Release",
]
