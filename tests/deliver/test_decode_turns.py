"""Large frames take turns; small ones and the patient do not wait for ever."""

from __future__ import annotations

import threading
import time

import pytest

from zkms.deliver.decode_turns import LARGE, DecodeTurn


def test_a_large_frame_waits_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until that one is done with."""
    monkeypatch.setattr("zkms.deliver.decode_turns.PATIENCE", 30.0)
    first, second = DecodeTurn(), DecodeTurn()
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
    first, second = DecodeTurn(), DecodeTurn()
    first.begin(LARGE)
    began = time.monotonic()
    for _ in range(100):
        second.begin(LARGE - 1)
        second.end()
    assert time.monotonic() - began < 1.0
    first.end()


def test_a_handler_that_blocks_holds_up_the_others_once_and_not_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its turn is over after a while; the next ones follow each other at once, though it still blocks."""
    monkeypatch.setattr("zkms.deliver.decode_turns.PATIENCE", 0.5)
    blocked, others = DecodeTurn(), [DecodeTurn() for _ in range(20)]
    blocked.begin(LARGE)
    began = time.monotonic()
    for other in others:
        other.begin(LARGE)
        assert other._taken is not None
        other.end()
    assert time.monotonic() - began < 0.5 * len(others) / 2
    blocked.end()


def test_a_handler_that_blocks_goes_without_turns_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or many that wait for something would do so one after the other."""
    monkeypatch.setattr("zkms.deliver.decode_turns.PATIENCE", 0.01)
    monkeypatch.setattr("zkms.deliver.decode_turns.WITHOUT", 3)
    blocked, other = DecodeTurn(), DecodeTurn()
    blocked.begin(LARGE)
    other.begin(LARGE)
    blocked.end()
    held = []
    for _ in range(4):
        blocked.begin(LARGE)
        held.append(blocked._taken is not None)
        blocked.end()
    assert held == [False, False, False, True]
    other.end()


def test_turns_are_waited_for_however_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience is with the turn that lasts, not with the many before one's own: at no time are there two."""
    monkeypatch.setattr("zkms.deliver.decode_turns.PATIENCE", 0.25)
    # A machine that stalls for so long ends a turn rightly; it does not do so every time.
    assert 1 in (_most_at_once(threads=60, seconds=0.01) for _ in range(5))


def _most_at_once(threads: int, seconds: float) -> int:
    busy: list[DecodeTurn] = []
    most: list[int] = []

    def work() -> None:
        turn = DecodeTurn()
        turn.begin(LARGE)
        busy.append(turn)
        most.append(len(busy))
        time.sleep(seconds)
        busy.remove(turn)
        turn.end()

    working = [threading.Thread(target=work) for _ in range(threads)]
    for thread in working:
        thread.start()
    for thread in working:
        thread.join()
    assert len(most) == threads
    return max(most)
