"""Every row of the requirements on competing consumers and on exactly-once has a test that names it."""

from __future__ import annotations

import re
from pathlib import Path

ROWS = [*(f"R{number}" for number in range(1, 11)), *(f"E{number}" for number in range(1, 9))]


def test_every_row_is_named_by_a_test() -> None:
    """R1 to R10 and E1 to E8, in the docstrings of the tests of this directory."""
    tests = [path.read_text() for path in Path(__file__).parent.glob("test_*.py") if path.name != Path(__file__).name]
    named = {row for text in tests for row in re.findall(r"\b[RE]\d+\b", text)}
    assert [row for row in ROWS if row not in named] == []
