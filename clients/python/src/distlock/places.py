"""What the process keeps of names, and messages that their locks may be free."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError
from redis.utils import str_if_bytes

LINGER, RECONNECT_PAUSE, PING_INTERVAL = 0.25, 0.25, 2.0


def beside(kind: str, name: str) -> str:
    """A key beside the lock's, in the same slot of a cluster, as Redisson names it."""
    return f"redisson_{kind}:{name}" if "{" in name else f"redisson_{kind}:{{{name}}}"


async def is_set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Waits for the event, and for no longer than that."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


class Place:
    """A name that is in use, or was 250 ms ago."""

    def __init__(self, name: str) -> None:
        self.name, self.channel = name, beside("lock__channel", name)
        self.users, self.looks, self.is_live = 0, 0, False
        """`looks` is how often to look at the lock before it is asked for."""
        # One task per name asks the server; the others queue here in the order of arrival.
        self.turn, self.wake = asyncio.Lock(), asyncio.Event()


class Places:
    """Wakes waiters at each message, and at each confirmation: one may be missed before."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._places: dict[str, Place] = {}
        self._listening: set[Place] = set()
        self._task: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None

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
            self._change(self._listening - {place})

    def listen(self, place: Place) -> None:
        self._change(self._listening | {place})
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        self._change(set())
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _change(self, listening: set[Place]) -> None:
        if listening != self._listening:
            self._listening = listening
            if self._reading is not None:
                self._reading.cancel()

    async def _run(self) -> None:
        """Ends when no place listens; the next waiter starts it again."""
        while self._listening:
            try:
                async with self._client.pubsub() as pubsub:
                    await self._serve(pubsub)
            except (RedisError, OSError):
                for place in self._listening:
                    place.is_live = False
                await asyncio.sleep(RECONNECT_PAUSE)

    async def _serve(self, pubsub: Any) -> None:
        """Never writes while it reads: redis-py makes a lost connection again in each call."""
        known: set[Place] = set()
        while self._listening:
            before, known = known, self._listening
            fresh = [place.channel for place in known - before]
            gone = {place.channel for place in before} - {place.channel for place in known}
            if gone:
                await pubsub.unsubscribe(*gone)
            if fresh:
                await pubsub.subscribe(*fresh)
            self._reading = asyncio.create_task(self._read(pubsub, known))
            await asyncio.wait({self._reading})
            if not self._reading.cancelled():
                self._reading.result()

    async def _read(self, pubsub: Any, known: set[Place]) -> None:
        """Takes all that has come in one step of the loop, which may be busy with other tasks."""
        # While redis-py connects, it swallows the cancellation of a task.
        while known is self._listening:
            message = await pubsub.get_message(timeout=PING_INTERVAL)
            if message is None:
                await pubsub.ping()
                message = await pubsub.get_message(timeout=PING_INTERVAL)
            if message is None:
                raise OSError("no answer to PING: the connection is half open")
            if message["type"] in ("subscribe", "message"):
                for place in known:
                    if place.channel == str_if_bytes(message["channel"]):
                        place.is_live = True
                        place.wake.set()
