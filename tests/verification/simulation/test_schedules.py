"""Schedules: the real code keeps its promises in them, they repeat exactly, and they miss what is taken away."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]
WORKLOADS = ["live", "durable", "group", "limits", "transaction", "delayed", "cache", "letters", "dropping"]
MECHANISMS = [
    *("epoch", "sequence", "fan-out", "resend", "names", "gap", "fence", "parts", "scopes"),
    *(
        "members",
        "resigning",
        "joining",
        "keys",
        "room",
        "refusal",
        "overflow",
        "together",
        "guard",
        "burial",
        "requeue",
        "backoff",
        "oldest",
        "giving-up",
    ),
]
ENOUGH = "2000"
"""Seeds that any of these is missed within; which one it is changes with the code, for so do the schedules."""


def simulate(*arguments: str) -> tuple[int, str]:
    """Run the command as a developer would; its exit code, and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "verification.simulation", *arguments],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_promise_is_kept(workload: str) -> None:
    """A fixed set of schedules; `make simulate` runs as many more as one likes."""
    code, said = simulate("--seeds", "20", "--workload", workload)
    assert (code, "0 broken" in said) == (0, True), said


def test_a_seed_is_one_schedule() -> None:
    """To the last step: a failure can be looked at as often as needed."""
    first, second = (simulate("--seed", "7")[1] for _ in range(2))
    assert re.sub(r"in [0-9.]+ s", "", first) == re.sub(r"in [0-9.]+ s", "", second)
    assert f"{len(WORKLOADS)} schedules" in first


def test_all_workloads_and_mechanisms_are_tried() -> None:
    """Those that the command knows are those that are named here, and in the document."""
    said = " ".join(simulate("--help")[1].split())
    assert f"[{'|'.join(WORKLOADS)}]" in said.replace("| ", "|")
    assert f"[{'|'.join(MECHANISMS)}]" in said.replace("| ", "|")
    document = (PROJECT / "docs" / "simulation.md").read_text()
    assert re.findall(r"^\| `([a-z-]+)` \| [a-z]+ \|", document, re.MULTILINE) == MECHANISMS


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_without_a_mechanism_a_promise_is_broken(mechanism: str) -> None:
    """And the report says how to see it again, with as few faults as it takes."""
    code, said = simulate("--without", mechanism, "--seeds", ENOUGH)
    assert code == 0, said
    replay = re.search(r"replay: python -m verification.simulation (.*)", said)
    assert replay, said
    assert "BROKEN" in simulate(*replay[1].split())[1]
    with_it = replay[1].replace(f"--without {mechanism}", "")
    assert "0 broken" in simulate(*with_it.split())[1]


def test_the_seeds_can_be_shared_by_processes() -> None:
    """The counts are those of all of them."""
    code, said = simulate("--seeds", "4", "--jobs", "2", "--workload", "live")
    assert (code, "4 schedules (live)" in said) == (0, True), said


def test_what_is_taken_away_is_taken_away_from_all_processes() -> None:
    """And what makes no sense for several seeds is refused."""
    code, said = simulate("--without", "scopes", "--seeds", "8", "--jobs", "2")
    assert (code, said.count("BROKEN: durable")) == (0, 2), said
    code, said = simulate("--faults", "0", "--seeds", "4", "--jobs", "2")
    assert (code, "give --seed too" in said) == (2, True), said
    code, said = simulate("--faults", "9", "--seed", "4", "--workload", "live")
    assert (code, "give places from 0" in said) == (2, True), said
