"""A process with Flask-Caching: HOSTS ROOT [unguarded]."""

from __future__ import annotations

import sys
import time
from typing import Any

from flask import Flask
from flask_caching import Cache
from serving import serve

hosts, root, *how = sys.argv[1:]
app = Flask("node")
app.config["CACHE_TYPE"] = "zkms.integrations.flask.ZkmsCache"
app.config["CACHE_OPTIONS"] = {
    "hosts": hosts,
    "root": root,
    "wait": 20.0,
    "cleaner": False,
    "session_timeout": 30.0,
    "max_staleness": 15.0,
}
cache = Cache(app)
rows: dict[str, Any] = {}


@cache.memoize()
def load(name: str) -> Any:
    """What is cached by its argument."""
    return rows[name]


@app.get("/row/<name>")
@cache.cached()
def row(name: str) -> Any:
    """What is cached by its address."""
    return str(rows[name])


class Node:
    """The cache, as an application uses it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(cache, name)

    def store(self, name: str, value: Any) -> None:
        """In this process's rows only: where each process has its own, what is cached can be told apart."""
        rows[name] = value

    def load(self, name: str) -> Any:
        """The memoized function."""
        return load(name)

    def drop(self, *names: str) -> None:
        """Of the memoized function: these results, or all."""
        cache.delete_memoized(load, *names)

    def page(self, name: str) -> str:
        """A request for the cached page."""
        return app.test_client().get(f"/row/{name}").text

    def miss_in_a_request(self, key: str) -> Any:
        """A request that looks for a key, and does nothing more."""
        with app.app_context():
            return cache.get(key)

    def counted(self, key: str, delta: int) -> Any:
        """inc() or dec()."""
        return cache.cache.inc(key, delta) if delta > 0 else cache.cache.dec(key, -delta)

    def ready(self) -> None:
        """Return when values can be kept."""
        while not cache.cache._backend.cache.trusted:
            time.sleep(0.01)


if how == ["unguarded"]:
    from zkms.cache.tickets import Tickets

    Tickets.valid = lambda *_args, **_kwargs: True  # type: ignore[method-assign]
serve(Node())
