"""What systemd hears of us, over the socket that it names in the environment (sd_notify); elsewhere nothing happens."""

from __future__ import annotations

import logging
import os
import socket

log = logging.getLogger("zkms.cleaner")


def notify(*lines: str) -> None:
    """Tell systemd, if it listens: READY=1, STOPPING=1, WATCHDOG=1, STATUS=..."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to_systemd:
            to_systemd.sendto(
                "\n".join(lines).encode(), address.replace("@", "\0", 1) if address[0] == "@" else address
            )
    except OSError as error:
        log.warning("systemd cannot be told %s: %s", lines[0], error)


def watchdog_seconds() -> float | None:
    """How long systemd waits for a WATCHDOG=1 before it restarts us; None if it does not watch."""
    wanted = os.environ.get("WATCHDOG_USEC", "")
    for_us = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return int(wanted) / 1_000_000 if for_us and wanted.isdecimal() and int(wanted) > 0 else None
