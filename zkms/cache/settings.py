"""The settings of a cache, and their checks."""

from __future__ import annotations

from typing import Any

import msgspec

from zkms.checks import check_seconds
from zkms.errors import InvalidArgument

SHARE = 2 / 3
"""The largest `max_staleness`, as a share of the session timeout, so that clocks may differ in speed."""


class CacheSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that users of one shared cache must agree on."""

    maxsize: int = 10_000
    ttl: float | None = None
    max_staleness: float = 5.0
    negative: bool = False
    load_timeout: float = 30.0

    def checked(self, session_timeout: float) -> CacheSettings:
        """Return them with numbers as float; `InvalidArgument` if a value is impossible."""
        if not isinstance(self.maxsize, int) or isinstance(self.maxsize, bool) or self.maxsize < 1:
            raise InvalidArgument(f"maxsize must be a whole number of at least 1, not {self.maxsize!r:.60}")
        if not isinstance(self.negative, bool):
            raise InvalidArgument(f"negative is True or False, not {self.negative!r:.60}")
        times: dict[str, float] = {}
        for what in ("ttl", "max_staleness", "load_timeout"):
            value = getattr(self, what)
            if value is None and what == "ttl":
                continue
            times[what] = check_seconds(what, value)
            if times[what] <= 0:
                raise InvalidArgument(f"{what} must be more than 0 seconds")
        longest = session_timeout * SHARE
        if times["max_staleness"] > longest:
            raise InvalidArgument(
                f"max_staleness={times['max_staleness']:g} is too long for a session time-out of {session_timeout:g} s:"
                f" at most 2/3 of it ({longest:.3g} s), so that a node which is cut off stops serving before others "
                "take it for gone. Lower it, or connect() with a longer session_timeout"
            )
        return msgspec.structs.replace(self, **times)

    def difference(self, other: CacheSettings) -> str:
        """Describe the settings that differ; empty if none do."""
        mine, theirs = msgspec.structs.asdict(self), msgspec.structs.asdict(other)
        return "; ".join(f"{what}={mine[what]!r}, not {theirs[what]!r}" for what in mine if mine[what] != theirs[what])


def given(settings: dict[str, Any]) -> CacheSettings:
    """Return cache settings from keyword arguments, of which others are ignored."""
    return CacheSettings(**{what: value for what, value in settings.items() if what in CacheSettings.__struct_fields__})
