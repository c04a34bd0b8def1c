"""What differs for trails: buses record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def trail(tmp_path: Path) -> Path:
    """A directory to record into, which does not exist yet."""
    return tmp_path / "trail"


@pytest.fixture
def connect_options(trail: Path) -> dict[str, Any]:
    """They record."""
    return {"trail": trail}
