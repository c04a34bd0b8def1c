"""A node that records: subscribes to a topic, says so, and lives until it is killed or its standard input ends."""

from __future__ import annotations

import sys

import zkms


def main(hosts: str, root: str, trail: str) -> None:
    """Serve."""
    with zkms.connect(hosts, root, trail=trail, cleaner=False, session_timeout=6.0) as bus:
        bus.subscribe("users", lambda _message: None)
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
