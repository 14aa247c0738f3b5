"""A contender of Python: takes, keeps and loses locks on commands from stdin.

It speaks the protocol of `conformance/src/protocol.rs`, knows a part of its commands and refuses
the others. It ends when stdin does, without releasing anything.
"""

import asyncio
import json
import os
import sys
import threading
import time
import uuid
from collections import Counter
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.lock import Lock
from redis.exceptions import LockNotOwnedError, RedisError

from distlock import HeldByOtherKind, LockLost, LockTimeout, Owner, Release
from distlock.aio import Guard, Locks

DIGITS = 20
OUTPUT = threading.Lock()
CODES = [
    (LockTimeout, "timed_out"),
    (LockLost, "lost"),
    (HeldByOtherKind, "held_by_other_kind"),
    (ValueError, "bad_request"),
    (KeyError, "no_such_handle"),
    (NotImplementedError, "unsupported"),
    (OSError, "io"),
    (RedisError, "backend"),
]


def now() -> int:
    """CLOCK_MONOTONIC, which is the same for all processes of a Linux machine."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def until(guard: Guard) -> int:
    """When the validity of a hold ends."""
    return int(guard.valid_until * 1e9)


def say(number: int | None, response: Any) -> None:
    line = json.dumps({"id": number, "at_ns": now(), "response": response}) + "\n"
    with OUTPUT:
        sys.stdout.write(line)
        sys.stdout.flush()


def failed(error: Exception) -> dict[str, Any]:
    code = next((code for kind, code in CODES if isinstance(error, kind)), "backend")
    return {"failed": {"code": code, "message": f"{type(error).__name__}: {error}"}}


class SharedCounter:
    """A number in a file that nothing guards: 20 digits, written in one piece."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def read(self) -> int:
        return int(os.pread(self._file, DIGITS, 0) or b"0")

    def write(self, number: int) -> None:
        os.pwrite(self._file, b"%020d" % number, 0)


class RedisCounter:
    """Tokens for tests. A counter in Redis is no token source: a failover may set it back."""

    def __init__(self, client: Redis) -> None:
        self._client = client

    async def next(self, name: str) -> int:
        return int(await self._client.incr(f"tokens:{name}"))


class LibraryGuard:
    """A lock of redis-py itself, as far as the contender asks."""

    token = None
    is_lost = False
    valid_until = 1e9

    def __init__(self, lock: Lock, name: str) -> None:
        self._lock = lock
        self.owner = Owner(str(lock.local.token), name)

    async def lost(self) -> Any:
        await asyncio.Event().wait()

    async def release(self) -> Release:
        try:
            await self._lock.release()
        except LockNotOwnedError:
            return Release.HELD_BY_OTHER
        return Release.RELEASED


class LibraryLocks(Locks):
    """The locks of redis-py itself, whose format is that of the kind `lua-release`."""

    async def lock(self, name: str, *, wait: float, lease: float, **_: Any) -> Any:
        lock = Lock(self._client, name, timeout=lease, sleep=0.002, blocking_timeout=wait)
        if not await lock.acquire():
            raise LockTimeout(name)
        return LibraryGuard(lock, name)


class Contender:
    def __init__(self, setup: dict[str, Any]) -> None:
        self._client = Redis.from_url(setup["addresses"]["redis"])
        self._issuer = RedisCounter(self._client) if setup["token_source"] else None
        made = LibraryLocks if setup["kind"] == "lua-release" else Locks
        self._locks = made(self._client)
        self._holds: dict[int, tuple[Guard, asyncio.Task[None]]] = {}
        self._owners: dict[str, Any] = {}
        self._last_handle = 0

    async def warm_up(self) -> None:
        guard = await self._locks.lock(f"lock:warm-up:{uuid.uuid4()}", wait=0, lease=2)
        await guard.release()

    async def answer(self, number: int, command: Any) -> None:
        verb = command if isinstance(command, str) else next(iter(command))
        what = None if isinstance(command, str) else command[verb]
        try:
            response = await getattr(self, f"do_{verb}", self.refuse)(what)
        except Exception as error:
            response = failed(error)
        say(number, response)

    async def refuse(self, what: Any) -> Any:
        raise NotImplementedError("this contender has no such command")

    async def acquire(self, want: dict[str, Any]) -> Guard:
        if want["max_hold_ms"] is not None:
            raise NotImplementedError("max_hold_ms")
        if want["fenced"] and self._issuer is None:
            raise ValueError("fenced: needs a token issuer")
        owner = want["as_owner"]
        return await self._locks.lock(
            want["name"],
            wait=want["wait_ms"] / 1000,
            lease=want["lease_ms"] / 1000,
            renew=want["renewed"] is not False,
            owner=None if owner is None else self._owners[owner],
            token_issuer=self._issuer if want["fenced"] else None,
        )

    async def do_lock(self, want: dict[str, Any]) -> Any:
        asked = now()
        guard = await self.acquire(want)
        acquired = now()
        self._last_handle += 1
        handle = self._last_handle
        self._owners[guard.owner.text] = guard.owner
        self._holds[handle] = guard, asyncio.create_task(self.report_loss(handle, guard))
        held = {"handle": handle, "owner": guard.owner.text, "token": guard.token}
        times = {"asked_ns": asked, "acquired_ns": acquired, "valid_until_ns": until(guard)}
        return {"held": held | times}

    async def report_loss(self, handle: int, guard: Guard) -> None:
        cause = await guard.lost()
        report = {"handle": handle, "cause": cause.value, "told_ns": now()}
        say(None, {"lost": report | {"valid_until_ns": until(guard)}})

    async def do_release(self, what: dict[str, Any]) -> Any:
        guard, reporter = self._holds.pop(what["handle"])
        reporter.cancel()
        return {"released": (await guard.release()).value}

    async def do_is_lost(self, what: dict[str, Any]) -> Any:
        return {"looked": {"lost": self._holds[what["handle"]][0].is_lost}}

    async def do_validity(self, what: dict[str, Any]) -> Any:
        end = until(self._holds[what["handle"]][0])
        return {"validity": {"until_ns": end, "looked_ns": now()}}

    async def do_effect(self, what: dict[str, Any]) -> Any:
        counter = SharedCounter(what["file"])
        is_held = not self._holds[what["handle"]][0].is_lost
        if is_held:
            counter.write(counter.read() + 1)
        return {"effected": {"done": is_held}}

    async def do_watch(self, what: dict[str, Any]) -> Any:
        guard, counter = self._holds[what["handle"]][0], SharedCounter(what["file"])
        begun = asyncio.Event()
        args = (guard, counter, what, asyncio.get_running_loop(), begun)
        threading.Thread(target=watch, args=args, daemon=True).start()
        await begun.wait()
        return "done"

    async def do_inspect(self, what: dict[str, Any]) -> Any:
        left = await self._client.pttl(what["name"])
        return {"inspected": {"is_locked": left != -2, "left_ms": left}}

    async def do_contend(self, contest: dict[str, Any]) -> Any:
        counter = SharedCounter(contest["counter"])
        failures: Counter[str] = Counter()

        async def rounds(task: int) -> list[Any]:
            records = []
            for _ in range(contest["rounds"]):
                if contest["until_ns"] is not None and now() >= contest["until_ns"]:
                    break
                try:
                    records.append(await self.enter_section(task, contest, counter))
                except Exception as error:
                    failures[failed(error)["failed"]["code"]] += 1
            return records

        brought = await asyncio.gather(*(rounds(task) for task in range(contest["tasks"])))
        return {"contended": {"records": sum(brought, []), "failures": failures}}

    async def enter_section(self, task: int, contest: Any, counter: SharedCounter) -> list[Any]:
        asked = now()
        guard = await self.acquire(contest["request"])
        acquired = now()
        seen = counter.read()
        await asyncio.sleep(contest["hold_us"] / 1e6)
        may_write = contest["ignore_loss"] or not guard.is_lost
        if may_write:
            counter.write(seen + 1)
        valid = min(now(), until(guard))
        await guard.release()
        token = guard.token or 0
        return [task, asked, [0, 0], acquired, valid, now(), may_write, token]

    async def do_count(self, _: Any) -> Any:
        locks = self._locks
        counts = {"attempts": locks.attempts, "busy": locks.busy, "hand_offs": locks.hand_offs}
        return {"counted": counts}

    async def do_flush(self, _: Any) -> Any:
        await self._locks.flush()
        return "done"


def watch(guard: Guard, counter: SharedCounter, what: Any, loop: Any, begun: asyncio.Event) -> None:
    """Effects, each after a look at the lock, and the longest time in which none was possible."""
    report = {"handle": what["handle"], "effects": 0, "valid_ns": now(), "last_effect_ns": now()}
    report |= {"looked_ns": now(), "slept_ns": now(), "woke_ns": now(), "effects_since": 0}
    seen = now()
    report["slept_ns"] = report["woke_ns"] = seen

    def note() -> int:
        nonlocal seen
        last, seen = seen, now()
        if seen - last > report["woke_ns"] - report["slept_ns"]:
            report.update(slept_ns=last, woke_ns=seen, effects_since=0)
        return seen

    while True:
        begin = note()
        if guard.is_lost:
            report["looked_ns"] = note()
            break
        report["valid_ns"] = begin
        counter.write(counter.read() + 1)
        report["effects"] += 1
        report["effects_since"] += 1
        report["last_effect_ns"] = note()
        loop.call_soon_threadsafe(begun.set)
        time.sleep(what["pause_us"] / 1e6)
    loop.call_soon_threadsafe(begun.set)
    say(None, {"watched": report})


async def main() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    contender = Contender(json.loads(await reader.readline()))
    try:
        await contender.warm_up()
    except Exception as error:
        say(None, failed(error))
        return
    say(None, "ready")
    tasks = set()
    while line := await reader.readline():
        request = json.loads(line)
        task = asyncio.create_task(contender.answer(request["id"], request["command"]))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    os._exit(0)


asyncio.run(main())
