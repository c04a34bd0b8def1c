"""What the tests of the analysis share: one Spark for a file's tests, and one analysis of a trail with known faults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from zkms_spark.analysis import Analysis, analyse
from zkms_spark.session import open_session

from zkms.trail.generate.generate import PLANTED, Generator
from zkms.trail.generate.planting import parse_faults

EVENTS = 200_000


@pytest.fixture
def connect_options() -> dict[str, Any]:
    """As a user connects: the bus may clean."""
    return {"cleaner": True}


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A local Spark."""
    with open_session("local[2]", {"spark.driver.memory": "1g"}, small=True) as session:
        yield session


@dataclass
class Case:
    """A generated trail, what was planted in it, and what the analysis says."""

    directory: Path
    planted: list[dict[str, Any]]
    analysis: Analysis


@pytest.fixture(scope="module")
def case(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A trail with each kind of violation."""
    directory = tmp_path_factory.mktemp("generated") / "trail"
    Generator(EVENTS, directory, faults=parse_faults("all=2"), features=True, parquet=True, seed=7).run()
    planted = json.loads((directory / PLANTED).read_text())["violations"]
    return Case(directory, planted, analyse(spark, str(directory)))
