"""`python -m simulation`: run schedules, and show those that break a promise."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and os.environ.get("PYTHONHASHSEED") != "0":
    # The order of a set of strings must be the same every time, or a seed would not be a schedule.
    os.execve(  # noqa: S606 - ourselves, with what we were given
        sys.executable, [sys.executable, "-m", "simulation", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"}
    )

from simulation.disguise import disguise

disguise()

from simulation.command import main  # noqa: E402 - zkms is to be disguised before anything imports it

main()
