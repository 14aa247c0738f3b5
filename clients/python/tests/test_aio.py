"""Locks of asyncio on a real Redis."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from redis.asyncio import Redis

from distlock import HeldByOtherKind, LockLost, LockTimeout, LossCause, Release
from distlock.aio import Guard, Locks

LIMIT = 10.0


@asynccontextmanager
async def locks_on(url: str) -> AsyncIterator[tuple[Redis, Locks]]:
    async with Redis.from_url(url, decode_responses=True) as client:
        locks = Locks(client)
        yield client, locks
        await locks.close()


def run(test: Callable[[Redis, Locks, str], Awaitable[None]], url: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), locks_on(url) as (client, locks):
            await test(client, locks, f"lock:test:{uuid.uuid4()}")

    asyncio.run(main())


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LIMIT):
        while not await holds():
            await asyncio.sleep(0.005)


async def waiters(client: Redis, name: str) -> int:
    return (await client.pubsub_numsub(f"redisson_lock__channel:{{{name}}}"))[0][1]


def test_a_second_owner_waits_until_the_first_one_releases(server: str) -> None:
    async def test(client: Redis, locks: Locks, name: str) -> None:
        async with locks_on(server) as (_, others):

            async def is_woken_by_the_message() -> bool:
                first = await locks.lock(name)
                assert await others.try_lock(name) is None
                waiting = asyncio.ensure_future(others.lock(name, wait=LIMIT))
                await eventually(lambda: is_waited_for(client, name))
                begun = time.monotonic()
                assert await first.release() is Release.RELEASED
                second = await waiting
                took = time.monotonic() - begun
                assert await locks.try_lock(name) is None
                assert await second.release() is Release.RELEASED
                assert await second.release() is Release.RELEASED, "a second release is the first"
                return took < 0.5

            # A process that stands still is late once, and one that polls is late each time.
            await eventually(is_woken_by_the_message)

    run(test, server)


async def is_waited_for(client: Redis, name: str) -> bool:
    return await waiters(client, name) == 1


def test_a_wait_that_is_over_raises_a_timeout(server: str) -> None:
    async def test(_: Redis, locks: Locks, name: str) -> None:
        async with await locks.lock(name):
            begun = time.monotonic()
            with pytest.raises(LockTimeout):
                await locks.lock(name, wait=0.3)
            assert 0.25 < time.monotonic() - begun < 5

    run(test, server)


def test_the_owner_enters_again_and_its_last_release_frees(server: str) -> None:
    async def test(client: Redis, locks: Locks, name: str) -> None:
        outer = await locks.lock(name)
        inner = await locks.lock(name, owner=outer.owner)
        assert await client.hgetall(name) == {outer.owner.text: "2"}
        assert await outer.release() is Release.RELEASED
        assert await locks.try_lock(name) is None
        assert await inner.release() is Release.RELEASED
        async with await locks.lock(name):
            with pytest.raises(LockLost):
                await locks.lock(name, owner=outer.owner)

    run(test, server)


def test_a_renewed_lease_lasts_and_one_that_is_not_renewed_ends(server: str) -> None:
    async def test(client: Redis, locks: Locks, name: str) -> None:
        renewed = await locks.lock(name, lease=9)
        fixed = await short_lock(locks, f"{name}:fixed", 0.9)
        assert await fixed.lost() is LossCause.EXPIRED
        assert await locks.lock(f"{name}:fixed", wait=LIMIT)
        begun = renewed.valid_until
        await eventually(lambda: renewed_beyond(renewed, begun + 2))
        assert not renewed.is_lost and await locks.try_lock(name) is None
        assert await fixed.release() is Release.HELD_BY_OTHER
        assert await renewed.release() is Release.RELEASED

    run(test, server)


async def short_lock(locks: Locks, name: str, lease: float) -> Guard:
    """A process that stands still has lost it before it is handed out, and takes another."""
    async with asyncio.timeout(LIMIT):
        while True:
            with suppress(LockLost):
                return await locks.lock(name, lease=lease, renew=False)


def test_a_guard_that_is_released_in_time_is_not_lost_after_the_end_of_its_lease(
    server: str,
) -> None:
    async def test(_: Redis, locks: Locks, name: str) -> None:
        async def is_released_in_time() -> bool:
            guard = await short_lock(locks, name, 0.3)
            lost = asyncio.create_task(guard.lost())
            await asyncio.sleep(0)
            releasing = asyncio.ensure_future(guard.release())
            await asyncio.sleep(0)
            is_in_time = time.monotonic() < guard.valid_until
            await releasing
            await asyncio.sleep(guard.valid_until - time.monotonic() + 0.05)
            assert not is_in_time or not (guard.is_lost or lost.done())
            lost.cancel()
            return is_in_time

        await eventually(is_released_in_time)

    run(test, server)


async def renewed_beyond(guard: object, end: float) -> bool:
    return guard.valid_until > end


def test_a_lock_that_is_removed_is_lost_and_its_context_says_so(server: str) -> None:
    async def test(client: Redis, locks: Locks, name: str) -> None:
        with pytest.raises(LockLost):
            async with await locks.lock(name, lease=9) as guard:
                await client.delete(name)
                assert await guard.lost() is LossCause.TAKEN
        assert await guard.release() is Release.GONE

    run(test, server)


def test_a_process_gives_way_after_each_release_that_others_were_told_of(server: str) -> None:
    async def test(client: Redis, locks: Locks, name: str) -> None:
        looks = 0
        pttl = client.pttl

        async def counted(key: str) -> int:
            nonlocal looks
            looks += 1
            return await pttl(key)

        client.pttl = counted
        async with Redis.from_url(server) as other, other.pubsub() as pubsub:
            await pubsub.subscribe(f"redisson_lock__channel:{{{name}}}")
            await eventually(lambda: is_waited_for(client, name))
            for _ in range(20):
                await (await locks.lock(name, wait=LIMIT)).release()
                await asyncio.sleep(0.15)
                await (await locks.lock(name, wait=LIMIT)).release()
                # 250 ms after the first release, but not after the second one.
                begun, before = time.monotonic(), looks
                await asyncio.sleep(0.15)
                guard = await locks.lock(name, wait=LIMIT)
                is_in_time = time.monotonic() - begun < 0.2
                await guard.release()
                if is_in_time:
                    assert looks > before
                    return
        pytest.fail("each round stood still")

    run(test, server)


def test_locks_are_closed_although_their_connection_for_messages_is_not_made(server: str) -> None:
    async def test(client: Redis, locks: Locks, name: str) -> None:
        # It accepts, and never answers.
        silent = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        async with locks_on(server) as (_, others), Redis(port=port) as away:
            await others.lock(name)
            client.pubsub = away.pubsub
            with pytest.raises(LockTimeout):
                await locks.lock(name, wait=0.1)
            closing = asyncio.create_task(locks.close())
            done, _ = await asyncio.wait({closing}, timeout=5.0)
            silent.close()
            assert done, "it is still being closed"

    run(test, server)


def test_scripts_that_the_server_has_forgotten_are_sent_again(server: str) -> None:
    async def test(client: Redis, locks: Locks, name: str) -> None:
        guard = await locks.lock(name)
        await client.script_flush()
        assert await guard.release() is Release.RELEASED
        await client.script_flush()
        await (await locks.lock(name)).release()

    run(test, server)


def test_a_lost_message_costs_a_second_at_most(server: str) -> None:
    async def test(client: Redis, locks: Locks, name: str) -> None:
        async with locks_on(server) as (_, others):

            async def wait_for_removed(name: str) -> float:
                await locks.lock(name)
                before = others.busy
                waiting = asyncio.ensure_future(others.lock(name, wait=LIMIT))
                # Once more after the confirmation of the subscription.
                while others.busy < before + 2:
                    await asyncio.sleep(0.005)
                begun = time.monotonic()
                await client.delete(name)
                await (await waiting).release()
                return time.monotonic() - begun

            # A process that stands still is late once; one that polls less often is late each time.
            took = [await wait_for_removed(name)]
            while min(took) > 2.0 and len(took) < 4:
                took.append(await wait_for_removed(f"{name}:{len(took)}"))
            assert min(took) < 2.0, took

    run(test, server)


def test_waiters_outlive_lost_connections_and_are_woken_by_messages_again(server: str) -> None:
    async def test(client: Redis, locks: Locks, name: str) -> None:
        async with locks_on(server) as (_, others):
            held = await locks.lock(name)
            waiting = asyncio.ensure_future(others.lock(name, wait=LIMIT))
            await eventually(lambda: is_waited_for(client, name))
            await client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            await eventually(lambda: is_waited_for(client, name))
            await held.release()
            await (await waiting).release()

    run(test, server)


def test_a_message_reaches_its_waiter_through_a_busy_loop_and_many_other_messages(
    server: str,
) -> None:
    async def test(client: Redis, locks: Locks, name: str) -> None:
        async def spin() -> None:
            while True:
                time.sleep(0.0002)
                await asyncio.sleep(0)

        async with locks_on(server) as (_, others):

            async def is_prompt() -> bool:
                busy, held = await locks.lock(f"{name}:busy"), await locks.lock(name)
                waits = [
                    asyncio.ensure_future(others.lock(guard.owner.name, wait=LIMIT))
                    for guard in (busy, held)
                ]
                for guard in (busy, held):
                    await eventually(lambda: is_waited_for(client, guard.owner.name))
                spinning = [asyncio.create_task(spin()) for _ in range(20)]
                async with client.pipeline(transaction=False) as pipeline:
                    for _ in range(500):
                        pipeline.publish(f"redisson_lock__channel:{{{name}:busy}}", "1")
                    await pipeline.execute()
                begun = time.monotonic()
                await held.release()
                second = await waits[1]
                took = time.monotonic() - begun
                for task in spinning:
                    task.cancel()
                await second.release()
                await busy.release()
                await (await waits[0]).release()
                return took < 0.5

            # A process that stands still is late once.
            await eventually(is_prompt)

    run(test, server)


def test_a_key_that_is_no_lock_is_refused_and_stays(server: str) -> None:
    async def test(client: Redis, locks: Locks, name: str) -> None:
        await client.set(name, "3")
        with pytest.raises(HeldByOtherKind):
            await locks.lock(name)
        assert await client.get(name) == "3"

    run(test, server)


def test_a_lock_that_is_granted_after_its_lease_is_lost_and_released(server: str) -> None:
    async def test(client: Redis, locks: Locks, name: str) -> None:
        async def is_lost() -> bool:
            await client.client_pause(500)
            try:
                await (await locks.lock(name, lease=0.1)).release()
            except LockLost:
                return True
            return False

        # If the process stands still, the pause may be over before the request.
        await eventually(is_lost)
        assert await client.exists(name) == 0

    run(test, server)


def test_bad_requests_are_refused_before_the_server_is_asked(server: str) -> None:
    async def test(client: Redis, locks: Locks, name: str) -> None:
        other, before = (await locks.lock(name)).owner, locks.attempts
        for bad in ({"lease": 0.001}, {"wait": -1}, {"wait": 90_000}, {"owner": other}):
            with pytest.raises(ValueError):
                await locks.lock(f"{name}:other", **bad)
        with pytest.raises(ValueError):
            await locks.lock("")
        assert locks.attempts == before, "the server was asked"

    run(test, server)
