"""A FastAPI application; settings come from the environment: HOSTS, ROOT, DATA (a file)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI

import zkms
from zkms.integrations.fastapi import Zkms

DATA = Path(os.environ["DATA"])
service = Zkms(os.environ["HOSTS"], root=os.environ["ROOT"], session_timeout=30.0)
values = service.cache("values", max_staleness=15.0)
Cache = Annotated[zkms.aio.Cache, Depends(values)]
Bus = Annotated[zkms.aio.Bus, Depends(service.bus)]
app = FastAPI(lifespan=service.lifespan)


async def load(_key: str) -> str:
    """From the file."""
    return DATA.read_text()


@app.get("/")
async def read(cache: Cache) -> dict[str, Any]:
    """The value, and how often it came from the cache."""
    return {"value": await cache.get("value", load), "hits": cache.stats.hits}


@app.put("/{value}")
async def write(value: str, cache: Cache) -> bool:
    """Change it; true when every process has dropped the old one."""
    DATA.write_text(value)
    return bool(await cache.invalidate("value", wait=20.0))


@app.get("/client")
async def client(bus: Bus) -> str:
    """Who this is in the cluster."""
    return bus.client_id
