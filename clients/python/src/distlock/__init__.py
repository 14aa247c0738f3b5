"""Distributed locks in Redis that Redisson's `RLock` and the Rust library `distlock` share.

`distlock.Locks` is for threads and `distlock.aio.Locks` for asyncio. Both have the same calls.
"""

from distlock.errors import HeldByOtherKind as HeldByOtherKind
from distlock.errors import LockError as LockError
from distlock.errors import LockLost as LockLost
from distlock.errors import LockTimeout as LockTimeout
from distlock.guard import LossCause as LossCause
from distlock.guard import Owner as Owner
from distlock.guard import Release as Release
from distlock.sync import Guard as Guard
from distlock.sync import Locks as Locks
