"""An invalidation as it travels: keys, tags, or everything."""

from __future__ import annotations

from typing import Any

import msgspec

from zkms.cache.keys import Key, decode_key


class Invalidation(msgspec.Struct, frozen=True, array_like=True):
    """What to drop; each key as `encode_key` makes it."""

    keys: list[bytes] = []
    tags: list[str] = []
    everything: bool = False

    def plain_keys(self) -> list[Key]:
        """The keys as they are in a store."""
        return [decode_key(raw) for raw in self.keys]


class InvalidationCodec:
    """Ours, so that a codec that the bus was given has no part in it."""

    name = "zkms.cache"

    def encode(self, data: Any) -> bytes:
        """An `Invalidation` as bytes."""
        return msgspec.msgpack.encode(data)

    def decode(self, raw: bytes) -> Invalidation:
        """The `Invalidation` again; raises if it is none."""
        return msgspec.msgpack.decode(raw, type=Invalidation)


CODEC = InvalidationCodec()
