"""Acquisitions of asyncio that are cancelled or get no answer, on a real Redis."""

import asyncio
from contextlib import suppress

import pytest
from redis.asyncio import Redis
from redis.exceptions import TimeoutError as NoAnswer
from test_aio import LIMIT, eventually, is_waited_for, locks_on, run, waiters

import distlock.aio
from distlock import Release
from distlock.aio import Locks


def test_a_cancelled_waiter_leaves_neither_hold_nor_subscription(server: str) -> None:
    async def test(client: Redis, locks: Locks, name: str) -> None:
        async with locks_on(server) as (_, others):
            held = await locks.lock(name)
            waiting = asyncio.ensure_future(others.lock(name, wait=LIMIT))
            await eventually(lambda: is_waited_for(client, name))
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await held.release()
            await others.flush()
            assert await client.exists(name) == 0

            async def is_left() -> bool:
                return await waiters(client, name) == 0

            await eventually(is_left)

    run(test, server)


def test_an_acquisition_cancelled_at_any_step_holds_nothing(server: str) -> None:
    async def test(client: Redis, locks: Locks, name: str) -> None:
        for steps in range(2000):
            task = asyncio.ensure_future(locks.lock(name))
            for _ in range(steps):
                await asyncio.sleep(0)
            is_done = task.done()
            task.cancel()
            try:
                await (await task).release()
            except asyncio.CancelledError:
                pass
            await locks.flush()
            assert await client.exists(name) == 0, f"after {steps} steps"
            if is_done:
                return
        pytest.fail("a free lock is not taken within 2000 steps")

    run(test, server)


def test_a_cancelled_re_entry_leaves_the_outer_hold_although_answers_are_lost(server: str) -> None:
    async def test(client: Redis, locks: Locks, name: str) -> None:
        outer = await locks.lock(name)
        run_script = locks._run

        async def unanswered(script: object, *words: object) -> object:
            answer = await run_script(script, *words)
            if script is locks._release:
                raise NoAnswer
            return answer

        locks._run = unanswered
        inner = asyncio.ensure_future(locks.lock(name, owner=outer.owner))
        while locks.attempts == 1:
            await asyncio.sleep(0)
        inner.cancel()
        with pytest.raises(asyncio.CancelledError):
            await inner
        await locks.flush()
        assert await client.hgetall(name) == {outer.owner.text: "1"}
        locks._run = run_script
        assert await outer.release() is Release.RELEASED

    run(test, server)


def test_a_cancellation_while_redis_py_connects_ends_the_acquisition(server: str) -> None:
    async def test(client: Redis, locks: Locks, name: str) -> None:
        for steps in range(30):
            await client.aclose()
            task = asyncio.ensure_future(locks.lock(name, wait=LIMIT))
            with locks._places.use(name) as place:
                place.looks = 2
            for _ in range(steps):
                await asyncio.sleep(0)
            if task.done():
                await task.result().release()
            else:
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await locks.flush()
            assert await client.exists(name) == 0, f"after {steps} steps"

    run(test, server)


def test_flush_does_not_wait_for_redis_py_after_a_cancellation(server: str) -> None:
    async def test(_: Redis, __: Locks, name: str) -> None:
        # It accepts, and never answers.
        silent = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        async with Redis(port=silent.sockets[0].getsockname()[1]) as away:
            locks = Locks(away)
            taking = asyncio.create_task(locks.lock(name, lease=0.5))
            while locks.attempts == 0:
                await asyncio.sleep(0)
            taking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await taking
            flushing = asyncio.create_task(locks.flush())
            done, _ = await asyncio.wait({flushing}, timeout=LIMIT)
            silent.close()
            assert done, "it waits for a request without an answer"

    run(test, server)


def test_flush_does_not_wait_for_a_request_that_swallows_its_cancellation(server: str) -> None:
    async def test(_: Redis, locks: Locks, __: str) -> None:
        asked, over = asyncio.Event(), asyncio.Event()

        async def request() -> None:
            asked.set()
            while not over.is_set():
                with suppress(asyncio.CancelledError):
                    await over.wait()

        asking = asyncio.create_task(locks._answered(request()))
        await asked.wait()
        asking.cancel()
        await asyncio.wait({asking})
        flushing = asyncio.create_task(locks.flush())
        done, _ = await asyncio.wait({flushing}, timeout=LIMIT)
        over.set()
        assert done, "it waits for the request"

    run(test, server)


def test_an_abandoned_attempt_is_given_up_before_the_end_of_a_long_lease(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distlock.aio, "ABANDON_MS", 300)

    async def test(_: Redis, __: Locks, name: str) -> None:
        # It accepts, and never answers.
        silent = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        async with Redis(port=silent.sockets[0].getsockname()[1]) as away:
            locks = Locks(away)
            with pytest.raises(NoAnswer):
                await locks.lock(name, lease=3600)
            flushing = asyncio.create_task(locks.flush())
            done, _ = await asyncio.wait({flushing}, timeout=LIMIT)
            silent.close()
            assert done, "it is still tried"

    run(test, server)
