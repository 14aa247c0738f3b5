"""What the process keeps of names, and messages that their locks may be free."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.utils import str_if_bytes

LINGER = RECONNECT_PAUSE = 0.25
PING_INTERVAL = 2.0


def beside(kind: str, name: str) -> str:
    """A key beside the lock's, in the same slot of a cluster, as Redisson names it."""
    return f"redisson_{kind}:{name}" if "{" in name else f"redisson_{kind}:{{{name}}}"


class Place:
    """A name that is in use, or was 250 ms ago."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.channel = beside("lock__channel", name)
        self.users = self.looks = 0
        """`looks` is how often to look at the lock before it is asked for."""
        # One task per name asks the server; the others queue here in the order of arrival.
        self.turn, self.wake = asyncio.Lock(), asyncio.Event()
        self.is_live = False


class Places:
    """Wakes waiters at each message, and at each confirmation: one may be missed before."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._places: dict[str, Place] = {}
        self._listening: set[Place] = set()
        self._changed = asyncio.Event()
        self._has_heard = True
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def use(self, name: str) -> Iterator[Place]:
        place = self._places.setdefault(name, Place(name))
        place.users += 1
        try:
            yield place
        finally:
            asyncio.get_running_loop().call_later(LINGER, self._drop, place)

    def _drop(self, place: Place) -> None:
        place.users -= 1
        if place.users == 0:
            del self._places[place.name]
            self._listening.discard(place)
            self._changed.set()

    def listen(self, place: Place) -> None:
        self._listening.add(place)
        self._changed.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        self._listening.clear()
        self._changed.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        """Ends when no place listens; the next waiter starts it again."""
        while self._listening:
            pubsub: Any = self._client.pubsub()
            try:
                await self._serve(pubsub)
            except* (RedisError, OSError):
                for place in self._listening:
                    place.is_live = False
                await asyncio.sleep(RECONNECT_PAUSE)
            finally:
                await pubsub.aclose()

    async def _serve(self, pubsub: Any) -> None:
        await pubsub.connect()
        # Only `_run` connects again: redis-py would do so in each of two concurrent calls.
        connection = pubsub.connection
        retry, connection.retry = connection.retry, Retry(NoBackoff(), 0)
        try:
            async with asyncio.TaskGroup() as tasks:
                reader = tasks.create_task(self._read(pubsub))
                await self._follow(pubsub)
                reader.cancel()
        finally:
            connection.retry = retry

    async def _read(self, pubsub: PubSub) -> None:
        """Takes all that has come in one step of the loop, which may be busy with other tasks."""
        while True:
            message = await pubsub.get_message(timeout=None)
            self._has_heard = True
            if message is not None and message["type"] in ("subscribe", "message"):
                for place in self._listening:
                    if place.channel == str_if_bytes(message["channel"]):
                        place.is_live = True
                        place.wake.set()

    async def _follow(self, pubsub: PubSub) -> None:
        """Subscribes to what is wanted and unsubscribes from what is not."""
        known: set[Place] = set()
        self._has_heard = True
        while self._listening:
            self._changed.clear()
            wanted = self._listening.copy()
            fresh = {place.channel for place in wanted - known}
            gone = {place.channel for place in known} - {place.channel for place in wanted}
            known = wanted
            if gone:
                await pubsub.unsubscribe(*gone)
            if fresh:
                await pubsub.subscribe(*fresh)
            try:
                async with asyncio.timeout(PING_INTERVAL):
                    await self._changed.wait()
            except TimeoutError:
                # A connection that is half open has not answered the last PING.
                if not self._has_heard:
                    raise OSError("no answer to PING") from None
                self._has_heard = False
                await pubsub.ping()
