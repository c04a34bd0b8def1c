"""`python -m verification.simulation`: run schedules, and show those that break a promise."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and os.environ.get("PYTHONHASHSEED") != "0":
    # The order of a set of strings must be the same every time, or a seed would not determine the schedule.
    os.execve(
        sys.executable,
        [sys.executable, "-m", "verification.simulation", *sys.argv[1:]],
        {**os.environ, "PYTHONHASHSEED": "0"},
    )

from verification.simulation.disguise import disguise

disguise()

from verification.simulation.command import main  # noqa: E402 - zkms is to be disguised before anything imports it

main()
