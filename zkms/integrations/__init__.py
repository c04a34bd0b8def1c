"""zkms behind the caches of frameworks: Django, Flask-Caching, FastAPI and dogpile.cache.

    zkms.integrations.django.ZkmsCache       a `BACKEND` for Django's CACHES
    zkms.integrations.flask.ZkmsCache        a `CACHE_TYPE` for Flask-Caching
    zkms.integrations.fastapi.Zkms           a lifespan, and dependencies
    zkms.integrations.dogpile.ZkmsBackend    `make_region().configure("zkms")`

`backend` is what all but FastAPI's have in common, `near` the cache as it needs it, and `process` the one bus of a
process, made when it is first needed. docs/integrations.md tells how to use them. May import the cache and what is
below it; each module but these three needs its framework. Read `backend` first.
"""

from zkms.integrations.process import close

__all__ = ["close"]
