"""A short selection of what `make fuzz` does: the same inputs in every run."""

from __future__ import annotations

import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from verification.fuzz.mutator import inputs
from verification.fuzz.target import Target, all_targets
from zkms.cli import COMMANDS

TARGETS = {target.name: target for target in all_targets()}
SELECTED = 1000


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_crashes(name: str) -> None:
    """The target's own examples, and mutations of them: a result, or an error that is documented."""
    target = TARGETS[name]
    for data in inputs(target.seeds, target.words, max(100, int(SELECTED * target.weight)), seed=7):
        target.check(data)


@pytest.mark.parametrize("name", ["frames", "ZooKeeper's replies", "the stream of replies", "znode data"])
def test_a_number_that_lies_costs_no_memory(name: str) -> None:
    """Lengths and counts that claim gigabytes, at every place of every example."""
    target = TARGETS[name]
    tracemalloc.start()
    try:
        for seed in target.seeds:
            for place in range(0, len(seed), 1 + len(seed) // 40):
                for lie in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfc", b"9999999999999999"):
                    target.check(seed[:place] + lie + seed[place + len(lie) :])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 * 1024 * 1024


def test_the_same_seed_gives_the_same_inputs() -> None:
    """Or a failure could not be looked into."""
    first, second = (list(inputs([b"abc", b"def"], [b"word"], 500, seed=3)) for _ in range(2))
    assert first == second
    assert len(set(first)) > 300


def test_a_target_that_crashes_is_noticed() -> None:
    """The search finds what is one flipped byte away from a seed."""

    def check(data: bytes) -> None:
        assert struct.unpack_from(">i", data)[0] >= 0

    target = Target("broken", check, (b"\x01\0\0\0rest",))
    made = inputs(target.seeds, target.words, 5000, seed=1)
    with pytest.raises((AssertionError, struct.error)):
        all(target.check(data) is None for data in made)


def test_every_command_is_there_once_the_targets_are() -> None:
    """A guide sees what is imported while it looks; of a command that is imported when it is called it saw nothing."""
    homes = {lazy.home.partition(":")[0] for lazy in COMMANDS.values()}
    program = (
        "import sys; from verification.fuzz.target import all_targets; [*all_targets()]; print(*sys.modules, sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3]
    )
    assert homes - set(done.stdout.split()) == set()
