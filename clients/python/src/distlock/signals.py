"""Messages that a lock may be free: one connection for all channels of a client."""

import asyncio
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.utils import str_if_bytes

UNSUBSCRIBE_DELAY = 0.25
PING_INTERVAL = 2.0
RECONNECT_PAUSE = 0.25


class Channel:
    """A channel with a waiter, or with one in the last 250 ms."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.users = 0
        self.is_live = False


class Signals:
    """Wakes waiters at each message, and at each confirmation: one may be missed before."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self.channels: dict[str, Channel] = {}
        self._changed = asyncio.Event()
        self._has_heard = True
        self.task: asyncio.Task[None] | None = None

    def enter(self, name: str) -> Channel:
        channel = self.channels.setdefault(name, Channel())
        channel.users += 1
        if channel.is_live:
            channel.wake.set()
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self._run())
        self._changed.set()
        return channel

    def leave(self, name: str, channel: Channel) -> None:
        channel.users -= 1
        asyncio.get_running_loop().call_later(UNSUBSCRIBE_DELAY, self._drop, name, channel)

    def _drop(self, name: str, channel: Channel) -> None:
        if channel.users == 0 and self.channels.get(name) is channel:
            del self.channels[name]
            self._changed.set()

    async def _run(self) -> None:
        """Ends when there is no channel; the next waiter starts it again."""
        while self.channels:
            try:
                await self._serve()
            except (RedisError, OSError):
                for channel in self.channels.values():
                    channel.is_live = False
                await asyncio.sleep(RECONNECT_PAUSE)

    async def _serve(self) -> None:
        pubsub = self._client.pubsub()
        await pubsub.connect()  # type: ignore[no-untyped-call]
        # This task alone connects again: redis-py would do so in each of two concurrent calls.
        connection: Any = pubsub.connection
        retry, connection.retry = connection.retry, Retry(NoBackoff(), 0)
        known: dict[str, Channel] = {}
        reader = changed = None
        self._has_heard = True
        try:
            while self.channels:
                self._changed.clear()
                await self._follow(pubsub, known)
                reader = reader or asyncio.create_task(self._read(pubsub))
                changed = asyncio.create_task(self._changed.wait())
                tasks = {reader, changed}
                done, _ = await asyncio.wait(
                    tasks, timeout=PING_INTERVAL, return_when="FIRST_COMPLETED"
                )
                changed.cancel()
                if reader in done:
                    reader.result()
                elif not done:
                    # A connection that is half open has not answered the last PING.
                    if not self._has_heard:
                        raise OSError("no answer to PING")
                    self._has_heard = False
                    await pubsub.ping()
        finally:
            if reader is not None and changed is not None:
                reader.cancel()
                changed.cancel()
                await asyncio.wait({reader, changed}, timeout=1.0)
            connection.retry = retry
            await pubsub.aclose()  # type: ignore[no-untyped-call]

    async def _read(self, pubsub: PubSub) -> None:
        """Takes all that has come in one step of the loop, which may be busy with other tasks."""
        while True:
            message = await pubsub.get_message(timeout=None)
            self._has_heard = True
            if message is None or message["type"] not in ("subscribe", "message"):
                continue
            if channel := self.channels.get(str_if_bytes(message["channel"])):
                channel.is_live = True
                channel.wake.set()

    async def _follow(self, pubsub: PubSub, known: dict[str, Channel]) -> None:
        """Subscribes to what is wanted and unsubscribes from what is not."""
        unwanted = [name for name in known if self.channels.get(name) is not known[name]]
        if unwanted:
            await pubsub.unsubscribe(*unwanted)
        for name in unwanted:
            del known[name]
        wanted = {name: self.channels[name] for name in self.channels.keys() - known.keys()}
        if wanted:
            await pubsub.subscribe(*wanted)
        known.update(wanted)
