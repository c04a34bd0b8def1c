"""A Django site for gunicorn, all in one file; settings come from the environment: HOSTS, ROOT, DATA (a file).

/read answers with the process and the value, from the cache or the file; /write/VALUE changes it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import django
from django.conf import settings
from django.http import HttpRequest, JsonResponse
from django.urls import path

settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="only for tests",
    CACHES={
        "default": {
            "BACKEND": "zkms.integrations.django.ZkmsCache",
            "LOCATION": os.environ["HOSTS"],
            "OPTIONS": {"root": os.environ["ROOT"], "wait": 20.0, "session_timeout": 30.0, "max_staleness": 15.0},
        }
    },
)
django.setup()

from django.core.cache import cache  # noqa: E402 - it needs the settings
from django.core.wsgi import get_wsgi_application  # noqa: E402

DATA = Path(os.environ["DATA"])
cache.set("loaded", os.getpid())  # with --preload this is in the parent of all workers: it has a connection of its own


def read(_request: HttpRequest) -> JsonResponse:
    """The value, from the cache or else the file; slowly, so that two requests need two processes."""
    value = cache.get("value")
    cached = value is not None
    if not cached:
        value = DATA.read_text()
        cache.set("value", value)
    time.sleep(0.2)
    return JsonResponse({"pid": os.getpid(), "loaded": cache.get("loaded"), "value": value, "cached": cached})


def write(_request: HttpRequest, value: str) -> JsonResponse:
    """Change it; when this returns, no process has the old one."""
    DATA.write_text(value)
    cache.delete("value")
    return JsonResponse({"pid": os.getpid()})


urlpatterns = [path("read", read), path("write/<value>", write)]
application = get_wsgi_application()
