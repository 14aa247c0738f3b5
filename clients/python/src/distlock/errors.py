"""What locks raise. Errors of the connection stay those of redis-py."""


class LockError(Exception):
    """Base of the errors of locks."""


class LockTimeout(LockError):
    """Another owner held the lock until the wait was over."""


class LockLost(LockError):
    """The lock ended without a release. Its owner cannot rely on it or enter it again."""


class HeldByOtherKind(LockError):
    """The key is no lock of the kind `redisson`."""
