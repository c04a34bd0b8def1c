"""Large frames take turns; small ones and the patient do not wait for ever."""

from __future__ import annotations

import threading
import time

import pytest

from zkms.turns import LARGE, Turn


def test_a_large_frame_waits_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until that one is done with."""
    monkeypatch.setattr("zkms.turns.PATIENCE", 30.0)
    first, second = Turn(), Turn()
    first.begin(LARGE)
    began = threading.Event()

    def wait() -> None:
        second.begin(LARGE)
        began.set()
        second.end()

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert not began.wait(0.1)
    first.end()
    assert began.wait(10)
    waiting.join()


def test_small_frames_do_not_wait() -> None:
    """They are over before anybody notices."""
    first, second = Turn(), Turn()
    first.begin(LARGE)
    began = time.monotonic()
    for _ in range(100):
        second.begin(LARGE - 1)
        second.end()
    assert time.monotonic() - began < 1.0
    first.end()


def test_a_handler_that_blocks_holds_nobody_up() -> None:
    """The others wait for a moment, and go on without their turn."""
    blocked, other = Turn(), Turn()
    blocked.begin(LARGE)
    other.begin(LARGE)
    other.end()
    blocked.end()
    other.begin(LARGE)
    assert other._held is not None
    other.end()
