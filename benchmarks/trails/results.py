"""What was measured, part by part: a part that is measured again replaces the one before."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import msgspec

from benchmarks.trails.contestant import Outcome


class Conditions(msgspec.Struct):
    """Where and beside whom a part was measured; `load` is the machine's, when it began and when it ended."""

    system: str
    python: str
    cores: int
    load: list[float]
    when: str


class Speed(msgspec.Struct):
    """The same questions to three contestants."""

    conditions: Conditions
    events: int
    outcomes: list[Outcome]
    agree: bool
    """Whether their answers are the same."""


class Planted(msgspec.Struct):
    """Violations that were planted against those that were found."""

    conditions: Conditions
    events: int
    planted: dict[str, int]
    found: dict[str, int]
    missed: int
    invented: int


class Scale(msgspec.Struct):
    """All jobs on trails of several sizes."""

    conditions: Conditions
    events: list[int]
    outcomes: list[Outcome]


class Recorder(msgspec.Struct):
    """What a trail costs: of each round, how much of the throughput without is left with one."""

    conditions: Conditions
    subscribers: int
    messages: int
    publish: list[float]
    end_to_end: list[float]
    publish_cpu: list[float]
    end_to_end_cpu: list[float]


class Results(msgspec.Struct):
    """All parts that were measured so far."""

    speed: Speed | None = None
    planted: Planted | None = None
    scale: Scale | None = None
    recorder: Recorder | None = None


def load(file: Path) -> Results:
    """What is known."""
    return msgspec.json.decode(file.read_bytes(), type=Results) if file.exists() else Results()


def save(results: Results, file: Path) -> None:
    """Keep it."""
    file.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")


def conditions(load_before: float, when: str) -> Conditions:
    """Of the part that ends now."""
    load = [round(load_before, 1), round(os.getloadavg()[0], 1)]
    system = f"{platform.system()} {platform.machine()}"
    return Conditions(system, platform.python_version(), os.cpu_count() or 1, load, when)
