"""The import contract and the picture of the rooms: what breaks the contract is named, with the place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LAYERS = Path(__file__).parents[2] / ".ci" / "layers.py"
FUNCTION = "def f():\n    import {}\n"


def check(project: Path, **sources: str) -> tuple[int, list[str]]:
    """Exit code, and what is said of a project with these modules in zkms/."""
    (project / "zkms").mkdir()
    (project / "zkms" / "__init__.py").write_text("from zkms import bus\n")
    for name, source in sources.items():
        file = project / "zkms" / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(source)
    done = subprocess.run([sys.executable, LAYERS, project], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()[:-1]


def test_imports_that_lead_down_are_fine(tmp_path: Path) -> None:
    """Also those of packages that may be missing, inside functions, and of the public names by a user's room."""
    sources = {
        "bus": "import zkms.errors\nfrom zkms.tree import paths\n",
        "tree__paths": "from ..errors import ZkmsError\n" + FUNCTION.format("rich"),
        "errors": "",
        "demo__story": "import zkms\n",
        "cli__pub": FUNCTION.format("zkms.demo.story"),
    }
    assert check(tmp_path, **sources) == (0, [])


@pytest.mark.parametrize("how", ["from zkms import bus", "if TYPE_CHECKING:\n    from zkms.bus import Bus"])
def test_an_import_that_leads_up_is_named(tmp_path: Path, how: str) -> None:
    """Also one that is for types only."""
    code, said = check(tmp_path, bus="", tree__paths=how)
    assert code == 1
    assert said == [f"zkms/tree/paths.py:{how.count(chr(10)) + 1} imports zkms.bus: zkms.tree is below zkms.bus"]


def test_a_circle_is_named(tmp_path: Path) -> None:
    """Inside one room, too."""
    code, said = check(
        tmp_path, bus="", tree__a="import zkms.tree.b", tree__b="from . import c", tree__c="from . import a"
    )
    assert (code, said) == (1, ["these import one another: zkms.tree.a, zkms.tree.b, zkms.tree.c"])


@pytest.mark.parametrize("name", ["json", "kazoo.client", "zkms.errors"])
def test_an_import_inside_a_function_is_named(tmp_path: Path, name: str) -> None:
    """Where what it imports is always there."""
    code, said = check(tmp_path, bus=FUNCTION.format(name), errors="")
    target = name if name.startswith("zkms") else name.partition(".")[0]
    assert (code, said) == (1, [f"zkms/bus.py:2 imports {target} inside a function"])


def test_a_room_without_a_layer_is_named(tmp_path: Path) -> None:
    """So that nobody forgets to give it one."""
    code, said = check(tmp_path, bus="", attic__box="")
    assert (code, said) == (1, ["zkms.attic is in no layer: say in .ci/layers.py where it belongs"])
