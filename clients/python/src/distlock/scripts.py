"""The Lua scripts of the repository's `lua/lock/`."""

import hashlib
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ConnectionError, NoScriptError, ResponseError, TimeoutError

from distlock.errors import HeldByOtherKind, LockLost

UNANSWERED = (ConnectionError, TimeoutError)
"""After these the server may have acted."""


class Script:
    """A script that is called by its digest. A server that does not know it gets its text."""

    def __init__(self, name: str) -> None:
        self.text = (files("distlock") / "lua" / f"{name}.lua").read_text()
        self.digest = hashlib.sha1(self.text.encode()).hexdigest()

    async def call(self, client: Redis, keys: list[str], args: list[Any]) -> Any:
        try:
            return await client.evalsha(self.digest, len(keys), *keys, *args)
        except NoScriptError:
            return await client.eval(self.text, len(keys), *keys, *args)
        except ResponseError as error:
            if str(error).startswith("LOST"):
                raise LockLost(str(error)) from error
            if "WRONGTYPE" in str(error):
                raise HeldByOtherKind(str(error)) from error
            raise


ACQUIRE = Script("redisson_acquire")
RELEASE = Script("redisson_release")
ABANDON = Script("redisson_abandon")
RENEW = Script("renew")


def prefixed(prefix: str, name: str) -> str:
    """A key beside the lock's, in the same slot of a cluster, as Redisson names it."""
    return f"{prefix}:{name}" if "{" in name else f"{prefix}:{{{name}}}"
