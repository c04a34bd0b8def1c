"""Stands for the cleaners' election until it is killed: leader.py HOSTS ROOT SESSION_TIMEOUT [TRAIL].

Says when it leads.
"""

from __future__ import annotations

import sys
import time

import zkms


def main(hosts: str, root: str, session_timeout: str, trail: str | None = None) -> None:
    """Lead, when it is our turn."""
    with zkms.connect(hosts, root, session_timeout=float(session_timeout), trail=trail) as bus:
        cleaner = bus.parts.cleaner
        assert cleaner is not None
        print("connected", flush=True)
        told = False
        while True:
            if cleaner.leading and not told:
                told = True
                print("leads", flush=True)
            time.sleep(0.02)


if __name__ == "__main__":
    main(*sys.argv[1:])
