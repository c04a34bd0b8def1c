"""A process with Django's cache: HOSTS ROOT [unguarded]."""

from __future__ import annotations

import sys
import time
from typing import Any

from django.conf import settings
from serving import serve

hosts, root, *how = sys.argv[1:]
settings.configure(
    CACHES={
        "default": {
            "BACKEND": "zkms.integrations.django.ZkmsCache",
            "LOCATION": hosts,
            "OPTIONS": {
                "root": root,
                "wait": 20.0,
                "cleaner": False,
                "session_timeout": 30.0,
                "max_staleness": 15.0,
            },
        }
    }
)

from django.core.cache import cache, caches  # noqa: E402 - it needs the settings


class Node:
    """Django's cache, as any program uses it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(cache, name)

    def end_request(self) -> None:
        """As Django does it."""
        caches.close_all()

    def ready(self) -> None:
        """Return when values can be kept."""
        while not cache._backend.cache.trusted:
            time.sleep(0.01)


if how == ["unguarded"]:
    from zkms.cache.tickets import Tickets

    Tickets.valid = lambda *_args, **_kwargs: True  # type: ignore[method-assign]
serve(Node())
