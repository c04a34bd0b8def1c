"""The import contract: `python .ci/layers.py [PROJECT]` ends with 1 and names each import that no room may make.

1. A room imports only from the layers below its own, or from rooms beside it. Imports for types count.
2. No modules import one another in a circle. Imports for types count.
3. Imports are at the top of a module, but for those listed here as lazy.

`.ci/architecture.py` draws the rooms from the same lists, and docs/architecture.md says what each is for.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parents[1]
PACKAGES = {"zkms": "zkms", "zkms_cleaner": "cleaner/zkms_cleaner", "zkms_spark": "spark/zkms_spark"}

LAYERS = (
    ("zkms",),
    ("zkms.cli", "zkms.bench", "zkms.demo", "zkms_spark", "zkms_cleaner.daemon"),
    ("zkms.testing", "zkms.integrations"),
    ("zkms.server",),
    ("zkms.aio",),
    ("zkms.connect",),
    ("zkms.cache",),
    ("zkms.bus", "zkms.transaction", "zkms.request_reply"),
    ("zkms.backup", "zkms.replay", "zkms_cleaner"),
    ("zkms.admin",),
    ("zkms.consume",),
    ("zkms.publish", "zkms.subscribe", "zkms.deliver"),
    ("zkms.context",),
    ("zkms.trail",),
    ("zkms.message",),
    ("zkms.tree",),
    ("zkms.zookeeper",),
    ("zkms.errors", "zkms.names", "zkms.config", "zkms.security", "zkms.checks", "zkms.version"),
)
"""The rooms, highest layer first."""
USERS = (
    *("zkms.cli", "zkms.bench", "zkms.demo", "zkms.testing", "zkms.integrations"),
    *("zkms_spark", "zkms_cleaner.daemon"),
)
"""Rooms that connect as a user's program does: they may import the public names, `zkms`."""
DAEMON = ("daemon", "metrics", "notify", "oneshot", "web")
"""Modules of zkms_cleaner that are the program around its duties: a room of their own, `zkms_cleaner.daemon`."""

LAZY = {
    "zkms": "names that few use: asyncio and the cache are imported when they are asked for",
    "zkms.connect": "the cleaner, which a process that only imports zkms does not need",
    "zkms.cli": "a command is imported when it is run, so that --help and the others start at once",
    "zkms.cache.store": "what stands on cachetools, an extra",
    "zkms.testing.fixtures": "a pytest plugin is imported in every run of its users",
    "zkms_cleaner.daemon": "metrics and web need an extra; --once needs neither",
    "zkms_spark": "executors import only what their task needs",
}
"""Modules, or packages of them, that may import others of the project inside functions; and why."""
ALWAYS_THERE = {"click", "kazoo", "msgspec", *sys.stdlib_module_names}
"""What is imported inside no function. Other packages are extras, which may be missing, and may be."""


class Import(NamedTuple):
    """One import statement's way from a module to another, or to a package of somebody else's."""

    source: str
    target: str
    line: int
    inside: bool
    """Whether it is inside a function."""


def room(module: str) -> str:
    """Where a module is: a folder or a module of zkms/, or one of the other packages."""
    package, _, rest = module.partition(".")
    if package == "zkms":
        return ".".join(module.split(".")[:2])
    return f"{package}.daemon" if package == "zkms_cleaner" and rest in DAEMON else package


def modules(project: Path = PROJECT) -> dict[str, Path]:
    """Every module of the project, and its file."""
    found = {}
    for package, folder in PACKAGES.items():
        for path in sorted((project / folder).rglob("*.py")):
            parts = (package, *path.relative_to(project / folder).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found.pop("zkms.__main__", None)  # `python -m zkms`: it is the command line's
    return found


def imports(found: dict[str, Path]) -> Iterator[Import]:
    """All imports of all modules. What leads out of the project has the other package's name as its target."""
    for module, path in found.items():
        tree = ast.parse(path.read_text())
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        inside = {id(node) for function in functions for node in ast.walk(function)}
        package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else []
                base = [*base, *(node.module.split(".") if node.module else [])]
                names = [".".join((*base, alias.name)) for alias in node.names]
            else:
                continue
            for name in sorted({_target(name, found) for name in names} - {module}):
                yield Import(module, name, node.lineno, id(node) in inside)


def _target(name: str, found: dict[str, Path]) -> str:
    """The module that a dotted name is, or is in."""
    while name not in found and "." in name:
        name = name.rpartition(".")[0]
    return name


def layer(module: str) -> int | None:
    """How far from the highest layer its room is; None if it is in no layer."""
    return next((depth for depth, rooms in enumerate(LAYERS) if room(module) in rooms), None)


def leads_up(each: Import) -> bool:
    """Whether an import breaks the first rule."""
    above, below = layer(each.source), layer(each.target)
    if above is None or below is None or room(each.source) == room(each.target):
        return False
    return below < above and not (below == 0 and room(each.source) in USERS)


def is_lazy(each: Import) -> bool:
    """Whether an import may be inside a function."""
    if each.target.partition(".")[0] not in PACKAGES:
        return each.target not in ALWAYS_THERE
    return any(each.source == name or (name != "zkms" and each.source.startswith(f"{name}.")) for name in LAZY)


def circles(edges: set[tuple[str, str]]) -> list[list[str]]:
    """The sets of modules that import one another (strongly connected components of more than one)."""
    after: dict[str, set[str]] = defaultdict(set)
    before: dict[str, set[str]] = defaultdict(set)
    for source, target in edges:
        after[source].add(target)
        before[target].add(source)

    def reach(start: str, ways: dict[str, set[str]]) -> set[str]:
        seen, left = {start}, [start]
        while left:
            new = ways[left.pop()] - seen
            seen |= new
            left += new
        return seen

    found, done = [], set[str]()
    for module in sorted({*after}):
        if module not in done:
            circle = reach(module, after) & reach(module, before)
            done |= circle
            if len(circle) > 1:
                found.append(sorted(circle))
    return found


def problems(project: Path, found: dict[str, Path], all_imports: list[Import]) -> Iterator[str]:
    """What breaks the contract, a sentence each."""
    homeless = {room(module) for module in found if layer(module) is None}
    yield from (f"{name} is in no layer: say in .ci/layers.py where it belongs" for name in sorted(homeless))
    inner = [each for each in all_imports if each.target in found]
    for each in all_imports:
        where = f"{found[each.source].relative_to(project)}:{each.line}"
        if each.target in found and leads_up(each):
            yield f"{where} imports {each.target}: {room(each.source)} is below {room(each.target)}"
        if each.inside and not is_lazy(each):
            yield f"{where} imports {each.target} inside a function"
    for circle in circles({(each.source, each.target) for each in inner}):
        yield f"these import one another: {', '.join(circle)}"


def main(project: Path) -> int:
    """Print what breaks the contract."""
    found = modules(project)
    broken = list(problems(project, found, list(imports(found))))
    for line in broken:
        print(line)
    print(f"layers: {len(found)} modules in {len(LAYERS)} layers, {len(broken) or 'no'} breaches of the contract")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else PROJECT))
