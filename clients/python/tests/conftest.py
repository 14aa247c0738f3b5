"""A private Redis for all tests."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address. Debian's `redis-check-rdb` is the same program under another name."""
    program = shutil.which("redis-server") or shutil.which("redis-check-rdb")
    assert program, "missing: redis-server; apt-get install redis-tools brings it"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder: Path = tmp_path_factory.mktemp("redis")
    words = ["redis-server", "--port", str(port), "--save", "", "--dir", str(folder)]
    process = subprocess.Popen(words, executable=program, stdout=subprocess.DEVNULL)
    url = f"redis://127.0.0.1:{port}/0"
    try:
        eventually(lambda: answers(url))
        yield url
    finally:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    try:
        with redis.Redis.from_url(url) as client:
            return bool(client.ping())
    except redis.ConnectionError:
        return False


def eventually(holds: object, limit: float = 10.0) -> None:
    deadline = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < deadline, f"not within {limit} s"
        time.sleep(0.005)
