"""An invalidation as a message: keys, tags, or everything."""

from __future__ import annotations

from typing import Any

import msgspec

from zkms.cache.keys import Key, decode_key


class Invalidation(msgspec.Struct, frozen=True, array_like=True):
    """What to drop; keys are encoded by `encode_key`."""

    keys: list[bytes] = []
    tags: list[str] = []
    everything: bool = False

    def plain_keys(self) -> list[Key]:
        """Return the decoded keys."""
        return [decode_key(raw) for raw in self.keys]


class InvalidationCodec:
    """The codec of invalidations, independent of the codec of the bus."""

    name = "zkms.cache"

    def encode(self, data: Any) -> bytes:
        """Encode an `Invalidation`."""
        return msgspec.msgpack.encode(data)

    def decode(self, raw: bytes) -> Invalidation:
        """Decode an `Invalidation`; raises if it is none."""
        return msgspec.msgpack.decode(raw, type=Invalidation)


CODEC = InvalidationCodec()
