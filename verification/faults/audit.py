"""The second opinion: Spark's audit of the trails that the processes of a trial have left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from zkms.cli.exit_codes import Exit
from zkms.server.errors import ServerError

_LONGEST = 1800.0


def audited(trail: Path, page: Path) -> str:
    """Return the verdict of `zkms report` on all guarantees: kept, broken, undecided or untried; `page` says why."""
    command = [sys.executable, "-m", "zkms", "report", "--trail", str(trail), "--out", str(page), "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST, check=False)
    except subprocess.TimeoutExpired as error:
        raise ServerError(f"zkms report has not ended after {_LONGEST:g} s") from error
    if done.returncode not in (Exit.OK, Exit.AMISS):  # of a process that was killed, the last line may be cut off
        raise ServerError(f"zkms report failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    return str(msgspec.json.decode(done.stdout)["verdict"])
