"""One ZooKeeper for the tests of the benchmark, embedded: where it runs makes no difference to them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from zkms.testing import EmbeddedZooKeeper


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedZooKeeper]:
    """Shared by all."""
    with EmbeddedZooKeeper() as started:
        yield started
