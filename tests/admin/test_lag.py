"""What a queue's stat says of its past."""

from __future__ import annotations

from zkms.admin.lag import QueueCounts, flow
from zkms.zookeeper.wire import Stat


def stat(created: int, children: int) -> Stat:
    """As ZooKeeper reports it: creates and deletes in one count, an int32 that wraps."""
    changes = 2 * created - children
    wrapped = (changes + 2**31) % 2**32 - 2**31
    return Stat(0, 0, 0, 0, 0, wrapped, 0, 0, 0, children, 0)


def test_entries_are_counted_past_the_end_of_zookeepers_count() -> None:
    """It wraps long before the numbers of the entries come to their end."""
    assert flow(stat(7, 3)) == QueueCounts(7, 4)
    assert stat(1_500_000_000, 10).cversion < 0
    assert flow(stat(1_500_000_000, 10)) == QueueCounts(1_500_000_000, 1_499_999_990)
