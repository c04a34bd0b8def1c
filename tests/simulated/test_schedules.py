"""Schedules: the real code keeps its promises in them, they repeat exactly, and they miss what is taken away."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
MECHANISMS = ["epoch", "sequence", "gap", "fence", "members", "guard"]
ENOUGH = "2000"
"""Seeds that any of these is missed within; which one it is changes with the code, for so do the schedules."""


def simulate(*arguments: str) -> tuple[int, str]:
    """Run the command as a developer would; its exit code, and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "simulation", *arguments],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("workload", ["live", "durable", "group", "delayed", "cache"])
def test_every_promise_is_kept(workload: str) -> None:
    """A fixed set of schedules; `make simulate` runs as many more as one likes."""
    code, said = simulate("--seeds", "20", "--workload", workload)
    assert (code, "0 broken" in said) == (0, True), said


def test_a_seed_is_one_schedule() -> None:
    """To the last step: a failure can be looked at as often as needed."""
    first, second = (simulate("--seed", "7")[1] for _ in range(2))
    assert re.sub(r"in [0-9.]+ s", "", first) == re.sub(r"in [0-9.]+ s", "", second)
    assert "5 schedules" in first


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_without_a_mechanism_a_promise_is_broken(mechanism: str) -> None:
    """And the report says how to see it again, with as few faults as it takes."""
    code, said = simulate("--without", mechanism, "--seeds", ENOUGH)
    assert code == 0, said
    replay = re.search(r"replay: python -m simulation (.*)", said)
    assert replay, said
    assert "BROKEN" in simulate(*replay[1].split())[1]
    with_it = replay[1].replace(f"--without {mechanism}", "")
    assert "0 broken" in simulate(*with_it.split())[1]


def test_the_seeds_can_be_shared_by_processes() -> None:
    """The counts are those of all of them."""
    code, said = simulate("--seeds", "4", "--jobs", "2", "--workload", "live")
    assert (code, "4 schedules (live)" in said) == (0, True), said
