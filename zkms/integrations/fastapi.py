"""FastAPI, or any Starlette application: a lifespan that connects, and dependencies for the bus and for caches.

    service = Zkms("zk1:2181,zk2:2181", root="/zkms")
    users = service.cache("users", maxsize=10_000)
    app = FastAPI(lifespan=service.lifespan)

    @app.get("/users/{number}")
    async def read(number: int, cache: Annotated[zkms.aio.Cache, Depends(users)]):
        return await cache.get(number, load_user)

Nothing is opened before the application starts, so a server may load it and fork.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from zkms import aio
from zkms.config import DEFAULT_HOSTS
from zkms.errors import Closed, InvalidArgument


class CacheDependency:
    """Depends(...) on this gives the cache."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self.name = name
        self.options = options
        self.opened: aio.Cache | None = None

    async def __call__(self) -> aio.Cache:
        """The cache of this process."""
        if self.opened is None:
            raise Closed(f"cache {self.name!r} is not open: {ADVICE}")
        return self.opened


ADVICE = "make the application with FastAPI(lifespan=service.lifespan), or enter that in a lifespan of your own"


class Zkms:
    """What an application uses of zkms: one bus, and caches by name."""

    def __init__(self, hosts: str = DEFAULT_HOSTS, **options: Any) -> None:
        """The arguments are those of zkms.connect(); it is called when the application starts."""
        self._hosts = hosts
        self._options = options
        self._caches: dict[str, CacheDependency] = {}
        self._bus: aio.Bus | None = None

    def cache(self, name: str, **options: Any) -> CacheDependency:
        """Declare a cache; the options are those of zkms.aio.Cache. Returns the dependency that gives it."""
        if name in self._caches:
            raise InvalidArgument(f"cache {name!r} is declared already: use what the first call returned")
        if self._bus is not None:
            raise InvalidArgument(f"cache {name!r} is declared too late: the application has started")
        made = self._caches[name] = CacheDependency(name, options)
        return made

    async def bus(self) -> aio.Bus:
        """As a dependency: the bus of this process."""
        if self._bus is None:
            raise Closed(f"the bus is not connected: {ADVICE}")
        return self._bus

    @asynccontextmanager
    async def lifespan(self, _app: Any = None) -> AsyncIterator[None]:
        """Connect and open the caches; close them when the application stops."""
        if self._bus is not None:
            raise InvalidArgument("this has been started already: make another Zkms for another application")
        async with AsyncExitStack() as stack:
            stack.callback(self._end)
            self._bus = await stack.enter_async_context(aio.connect(self._hosts, **self._options))
            for each in self._caches.values():
                each.opened = await stack.enter_async_context(aio.Cache(self._bus, each.name, **each.options))
            yield

    def _end(self) -> None:
        self._bus = None
        for each in self._caches.values():
            each.opened = None
