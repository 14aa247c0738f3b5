"""Fencing tokens, on a real Redis."""

import asyncio
from contextlib import suppress

import pytest
from redis.asyncio import Redis
from test_aio import LIMIT, eventually, locks_on, run

from distlock import LockLost, Release
from distlock.aio import Locks

LEASE = 1.5


def test_all_holds_of_an_owner_have_one_token_and_each_owner_a_higher_one(server: str) -> None:
    class Counter:
        last = 0

        async def next(self, name: str) -> int:
            self.last += 1
            return self.last

    async def test(_: Redis, locks: Locks, name: str) -> None:
        issuer = Counter()
        async with await locks.lock(name, token_issuer=issuer) as outer:
            async with await locks.lock(name, owner=outer.owner, token_issuer=issuer) as inner:
                assert outer.token == inner.token == 1
        async with await locks.lock(name, token_issuer=issuer) as later:
            assert later.token == 2

    run(test, server)


def test_a_token_that_comes_after_the_lease_is_not_handed_out(server: str) -> None:
    class Slow:
        async def next(self, name: str) -> int:
            self.second = await self.others.lock(name, wait=LIMIT)
            return 1

    issuer = Slow()

    async def test(_: Redis, locks: Locks, name: str) -> None:
        async with locks_on(server) as (_, issuer.others):
            with pytest.raises(LockLost):
                await locks.lock(name, lease=0.2, renew=False, token_issuer=issuer)
            assert await locks.try_lock(name) is None, "the second owner holds it"
            assert await issuer.second.release() is Release.RELEASED

    run(test, server)


def test_a_draw_that_fails_leaves_nothing_and_the_next_hold_of_the_owner_draws(server: str) -> None:
    class Failing:
        async def next(self, name: str) -> int:
            raise OSError("the database is away")

    class One:
        async def next(self, name: str) -> int:
            return 1

    async def test(client: Redis, locks: Locks, name: str) -> None:
        with pytest.raises(OSError):
            await locks.lock(name, token_issuer=Failing())
        assert await client.exists(name) == 0
        outer = await locks.lock(name)
        with pytest.raises(OSError):
            await locks.lock(name, owner=outer.owner, token_issuer=Failing())
        inner = await locks.lock(name, owner=outer.owner, token_issuer=One())
        assert inner.token == 1 and outer.token is None
        await inner.release()
        await outer.release()
        assert await client.exists(name) == 0

    run(test, server)


def test_a_token_that_comes_within_a_renewed_lease_is_handed_out(server: str) -> None:
    class Slow:
        async def next(self, name: str) -> int:
            # Beyond the lease as it was granted.
            await asyncio.sleep(LEASE + 0.2)
            return 1

    async def test(_: Redis, locks: Locks, name: str) -> None:
        async def is_handed_out() -> bool:
            # A process that stands still loses the lock meanwhile.
            with suppress(LockLost):
                async with await locks.lock(name, lease=LEASE, token_issuer=Slow()) as guard:
                    return guard.token == 1
            return False

        await eventually(is_handed_out)

    run(test, server)
