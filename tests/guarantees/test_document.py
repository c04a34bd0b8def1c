"""docs/guarantees.md names tests, and they exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent.parent


def test_every_test_that_the_document_names_exists() -> None:
    """A guarantee whose test was renamed would have none."""
    document = (TESTS.parent / "docs" / "guarantees.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", document))
    assert len(named) > 40
    there = {
        name for path in TESTS.rglob("test_*.py") for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    }
    assert sorted(named - there) == []
