"""FastAPI in two processes, each with a cache in its memory: a change is seen by both.

python fastapi_cache.py [HOST:PORT]
"""

import multiprocessing
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import httpx
import uvicorn
from fastapi import Depends, FastAPI

import zkms
from zkms.integrations.fastapi import Zkms

HOSTS = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ZKMS_HOSTS", "127.0.0.1:2181")
service = Zkms(HOSTS, root=os.environ.get("ZKMS_ROOT", "/zkms"))  # connects when the application starts
prices = service.cache("prices", maxsize=10_000)
Prices = Annotated[zkms.aio.Cache, Depends(prices)]
app = FastAPI(lifespan=service.lifespan)


async def load(article: str) -> str:
    """From the database, so to speak."""
    return Path(os.environ["DATA"], article).read_text()


@app.get("/{article}")
async def read(article: str, cache: Prices) -> str:
    """From memory, if it is there."""
    return str(await cache.get(article, load))


@app.put("/{article}/{price}")
async def change(article: str, price: str, cache: Prices) -> bool:
    """True when every process has dropped the old price."""
    Path(os.environ["DATA"], article).write_text(price)
    return bool(await cache.invalidate(article, wait=10.0))


if __name__ == "__main__":
    os.environ["DATA"] = tempfile.mkdtemp()
    Path(os.environ["DATA"], "apple").write_text("10")
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    for each in sockets:
        server = uvicorn.Server(uvicorn.Config("fastapi_cache:app", log_level="warning"))
        multiprocessing.get_context("spawn").Process(target=server.run, args=([each],)).start()
    urls = [f"http://127.0.0.1:{each.getsockname()[1]}/apple" for each in sockets]
    print("cached:", *[httpx.get(url, timeout=30).json() for url in urls])
    print("changed by the first:", httpx.put(f"{urls[0]}/12", timeout=30).json())
    print("read by the second:", httpx.get(urls[1], timeout=30).json())
    for process in multiprocessing.active_children():
        process.terminate()
