"""zkms behind the caches that people use already: Django's and dogpile.cache.

    zkms.integrations.django.ZkmsCache       a `BACKEND` for Django's CACHES
    zkms.integrations.dogpile.ZkmsBackend    `make_region().configure("zkms")`

`backend` is what they have in common, `near` the cache as it needs it, and `process` the one
bus of a process, made when it is first needed. docs/integrations.md tells how to use them.
"""

from zkms.integrations.process import close

__all__ = ["close"]
