"""What differs for the command line: the bus beside it may clean, as a user's does."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.client import KazooClient


@pytest.fixture
def connect_options() -> dict[str, Any]:
    """As a user connects."""
    return {"cleaner": True}


@pytest.fixture
def kazoo(raw: KazooClient) -> KazooClient:
    """Another program, which knows nothing of zkms."""
    return raw
