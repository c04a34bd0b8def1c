"""What all tests share: the fixtures come from the pytest plugin `zkms.testing.fixtures`, as they do for users."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest
from hypothesis import settings

settings.register_profile("zkms", deadline=None)  # a busy machine is no counterexample
settings.load_profile("zkms")
pytest_plugins = ["pytester"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell has it for what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # commands under test are interrupted, and inherit this


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Wait until a condition holds, with a deadline."""

    def wait(condition: Callable[[], object], timeout: float = 30.0, what: str = "the condition") -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come true in {timeout:g} s"
            time.sleep(0.01)

    return wait
