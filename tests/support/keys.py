"""Keys for tests of groups."""

from __future__ import annotations

from zkms.publish.routing import partition_of


def keys_for(partitions: int) -> list[str]:
    """A key for each partition."""
    keys: dict[int, str] = {}
    number = 0
    while len(keys) < partitions:
        keys.setdefault(partition_of(f"block-{number}", partitions), f"block-{number}")
        number += 1
    return [keys[partition] for partition in range(partitions)]
