"""What differs for whole releases: the bus may clean, as a user's does."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def connect_options() -> dict[str, Any]:
    """As a user connects."""
    return {"cleaner": True}
