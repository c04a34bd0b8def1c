"""verification/README.md maps each guarantee to what tries it: what it names exists, and none is left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from verification.faults import campaign
from verification.fuzz.target import all_targets
from verification.mutations.mechanisms import MECHANISMS
from verification.simulation.mechanisms import MECHANISMS as TAKEN_AWAY
from verification.simulation.run import WORKLOADS
from verification.soak import roles

PROJECT = Path(__file__).parents[2]
MAP = PROJECT / "verification" / "README.md"


def tables(text: str, first: str) -> Iterator[dict[str, str]]:
    """The rows of all tables whose first column is called so."""
    names: list[str] | None = None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line[1:-1].split("|")] if line.startswith("|") else None
        if cells is None or names is None:
            names = cells
        elif names[0] == first and not line.startswith("|---"):
            yield dict(zip(names, cells, strict=True))


def quoted(column: str) -> set[str]:
    """All that a column has in backquotes."""
    return {name for row in tables(MAP.read_text(), "guarantee") for name in re.findall(r"`([^`]+)`", row[column])}


def in_simulation(name: str) -> bool:
    """A workload, or a workload and what is taken away from it."""
    workload, _, mechanism = name.partition("/")
    return workload in WORKLOADS and (not mechanism or TAKEN_AWAY[mechanism].workload == workload)


THERE: dict[str, Callable[[str], bool]] = {
    "simulation": in_simulation,
    "faults": lambda name: name in campaign.WORKLOADS,
    "mutations": lambda name: name in {mechanism.name for mechanism in MECHANISMS},
    "soak": lambda name: callable(getattr(roles, name, None)),
    "fuzz": lambda name: name in {target.name for target in all_targets()},
}


@pytest.mark.parametrize("column", THERE)
def test_what_the_map_names_exists(column: str) -> None:
    """By the name that the tool itself knows."""
    named = quoted(column)
    assert named
    assert [name for name in sorted(named) if not THERE[column](name)] == []


def test_links_lead_somewhere() -> None:
    """To tests, pages and directories."""
    links = {link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", MAP.read_text())}
    assert [link for link in sorted(links) if not (MAP.parent / link).exists()] == []


def test_no_guarantee_is_left_out() -> None:
    """Neither one of docs/guarantees.md, nor a row of the README."""
    rows = list(tables(MAP.read_text(), "guarantee"))
    first_words = [row["guarantee"] for row in rows]
    promised = [row["guarantee"] for row in tables((PROJECT / "docs" / "guarantees.md").read_text(), "guarantee")]
    assert len(promised) > 20
    assert [each for each in promised if not any(each.startswith(words) for words in first_words)] == []
    labels = {row[""] for row in tables((PROJECT / "README.md").read_text(), "") if "what you can rely on" in row}
    assert len(labels) > 10
    assert labels == {row["README"] for row in rows} - {""}


def test_no_mechanism_is_left_out() -> None:
    """Each that is switched off is for some guarantee."""
    assert {mechanism.name for mechanism in MECHANISMS} <= quoted("mutations")
    assert {f"{mechanism.workload}/{name}" for name, mechanism in TAKEN_AWAY.items()} <= quoted("simulation")
    assert {target.name for target in all_targets()} <= quoted("fuzz")
