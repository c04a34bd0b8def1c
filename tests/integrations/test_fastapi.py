"""FastAPI under uvicorn, in two processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

import zkms
from tests.integrations.conftest import HERE
from tests.support.buses import Eventually
from zkms.integrations.fastapi import Zkms
from zkms.server.server import Server


@contextmanager
def uvicorn(application: str, **environ: str) -> Iterator[httpx.Client]:
    """Run an application of `programs/`; it has ended well afterwards."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        number, port = listening.fileno(), listening.getsockname()[1]
        running = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "--fd", str(number), "--log-level", "warning", application],
            cwd=HERE / "programs",
            env=os.environ | environ,
            pass_fds=[number],
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield client
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) in (0, -signal.SIGTERM), "it did not end well"
    finally:
        running.kill()
        running.wait()


def test_a_write_in_one_process_is_seen_by_the_other(
    zookeeper: Server, zookeeper_root: str, tmp_path: Path, eventually: Eventually
) -> None:
    """Both serve from memory; a change in one is seen by both when its request has been answered."""
    data = tmp_path / "value"
    data.write_text("old")
    with ExitStack() as stack:
        both = [
            stack.enter_context(uvicorn("fastapi_site:app", HOSTS=zookeeper.hosts, ROOT=zookeeper_root, DATA=str(data)))
            for _ in range(2)
        ]
        for each in both:
            eventually(lambda client=each: client.get("/").json()["hits"] > 0, what="a hit")
        assert both[0].get("/client").json() != both[1].get("/client").json()
        data.write_text("changed behind the cache")
        assert [each.get("/").json()["value"] for each in both] == ["old", "old"]
        assert both[0].put("/new").json() is True
        assert [each.get("/").json()["value"] for each in both] == ["new", "new"]


def test_a_dependency_without_the_lifespan_says_what_to_do(zookeeper: Server, zookeeper_root: str) -> None:
    """Before the start, after the end, and where it is started twice."""
    service = Zkms(zookeeper.hosts, root=zookeeper_root)
    users = service.cache("users")
    with pytest.raises(zkms.InvalidArgument, match="declared already"):
        service.cache("users")

    async def use() -> None:
        for depends in (users, service.bus):
            with pytest.raises(zkms.Closed, match="lifespan"):
                await depends()
        async with service.lifespan():
            assert (await users()).name == "users"
            assert not (await users()).closed
            with pytest.raises(zkms.InvalidArgument, match="too late"):
                service.cache("more")
            with pytest.raises(zkms.InvalidArgument, match="already"):
                async with service.lifespan():
                    pass
            assert not (await users()).closed
        with pytest.raises(zkms.Closed):
            await users()
        async with service.lifespan():  # an application may be started again
            assert (await users()).trusted is not None

    asyncio.run(use())
