"""docs/architecture.md is true of the sources: files, rooms, threads, and the names in its last table."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[1]
PAGE = PROJECT / "docs" / "architecture.md"
CODE = [PROJECT / folder for folder in ("zkms", "cleaner/zkms_cleaner", "spark/zkms_spark")]


def links(text: str) -> list[Path]:
    """Where a text's links lead."""
    return [PAGE.parent / link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text)]


def source(path: Path) -> str:
    """The text of a module, or of all modules of a room."""
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return "\n".join(file.read_text() for file in files)


def section(title: str) -> list[list[str]]:
    """The cells of the table below a title."""
    _, found, rest = PAGE.read_text().partition(f"\n## {title}\n")
    assert found, title
    rows = [line for line in rest.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[1:]]


def test_its_links_lead_somewhere() -> None:
    """A module that was moved is to be moved there, too."""
    assert [str(path) for path in links(PAGE.read_text()) if not path.exists()] == []


def test_every_room_is_there() -> None:
    """Each folder of zkms/, and each module of its root but for the small ones of the lowest layer."""
    rooms = {path.resolve() for row in section("Rooms and layers") for path in links(row[0])}
    folders = {path.parent for path in (PROJECT / "zkms").glob("*/__init__.py")}
    small = {"__main__.py", "checks.py", "security.py", "version.py"}
    modules = {path for path in (PROJECT / "zkms").glob("*.py") if path.name not in small}
    assert sorted(map(str, (folders | modules) - rooms)) == []


def test_every_thread_is_there() -> None:
    """By the beginning of its name, in the module that starts it."""
    for row in section("Threads"):
        code = "\n".join(map(source, links(row[1])))
        for name in re.findall(r"`([^`]+)`", row[0]):
            assert f'"{name.removesuffix("TOPIC")}' in code, name


def test_there_are_twenty_words() -> None:
    """One meaning each."""
    words = [row[0] for row in section("Twenty words")]
    assert len(words) == len(set(words)) == 20


def test_what_is_to_be_changed_is_where_it_is_said_to_be() -> None:
    """Names in backquotes are in one of the files beside them."""
    for what, where in section("Where do I change ..."):
        assert links(where), what
        for name in re.findall(r"`(\w+)`", where):
            assert any(re.search(rf"\b{name}\b", source(path)) for path in links(where) if path.suffix != ".md"), name


def test_the_picture_is_of_these_sources() -> None:
    """`make architecture` draws it."""
    command = [sys.executable, PROJECT / ".ci" / "architecture.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "")
