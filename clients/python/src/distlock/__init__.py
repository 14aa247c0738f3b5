"""Distributed locks in Redis that Redisson's `RLock` and the Rust library `distlock` share.

`distlock.Locks` is for threads and `distlock.aio.Locks` for asyncio. Both have the same calls.
"""

from distlock.aio import LockOptions as LockOptions, LossCause as LossCause, Owner as Owner
from distlock.aio import Release as Release, TokenIssuer as TokenIssuer
from distlock.errors import *
from distlock.sync import Guard as Guard, Locks as Locks
