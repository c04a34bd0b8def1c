"""What is used: CPU and memory of processes, requests to ZooKeeper, and how busy the machine was before we began."""

from __future__ import annotations

import os
import re
import resource
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from zkms.bench.processes.orders import Usage
from zkms.server.words import ask

KB = 1024
BUSY = 0.15
"""Share of the machine's CPU from which on others count as at work."""


def own_usage() -> Usage:
    """Of this process."""
    status = _status(os.getpid())
    biggest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else KB)
    return Usage(time.process_time(), status.get("VmRSS", biggest), status.get("VmHWM", biggest))


def forget_peak() -> None:
    """Let `peak` be counted from now on, where the system can do that."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return  # the peak then is that of the process's whole life, which is no less


def _status(pid: int) -> dict[str, int]:
    """The sizes in /proc, in bytes; empty where there is no such thing."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return {}
    return {name: int(size) * KB for name, size in re.findall(r"^(Vm\w+):\s+(\d+) kB", text, re.MULTILINE)}


class MeterReading(msgspec.Struct):
    """A server's meters at one moment; None where they cannot be read."""

    requests: int | None
    cpu: float | None
    memory: int | None


class ServerMeter:
    """ZooKeeper's counters by four-letter word, and its processes' use where they are ours."""

    def __init__(self, hosts: str, pids: Sequence[int] = ()) -> None:
        self._addresses = [_address(host) for host in hosts.split("/")[0].split(",")]
        self._pids = list(pids)

    def read(self) -> MeterReading:
        """Now."""
        return MeterReading(self._requests(), total_cpu(self._pids), self._memory())

    def _requests(self) -> int | None:
        counted = 0
        for host, port in self._addresses:
            try:
                answer = ask(host, port)
            except OSError:
                return None
            match = re.search(r"^Received: (\d+)", answer, re.MULTILINE)
            if match is None:
                return None  # `srvr` is not on the server's whitelist
            counted += int(match[1])
        return counted

    def _memory(self) -> int | None:
        sizes = [_status(pid).get("VmRSS") for pid in self._pids]
        return sum(size for size in sizes if size is not None) if sizes and None not in sizes else None


def total_cpu(pids: Iterable[int]) -> float | None:
    """Seconds of CPU that processes have used; None if that cannot be told."""
    ticks, asked = 0, False
    for pid in pids:
        asked = True
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            return None
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK") if asked else None


def _address(host: str) -> tuple[str, int]:
    name, _, port = host.strip().rpartition(":")
    return (name.strip("[]"), int(port)) if name and port.isdigit() else (host.strip(), 2181)


def others_at_work(sample: float = 0.5) -> str:
    """A sentence if somebody else uses this machine now, while we do nothing; empty if not.

    The load average tells only where the system does not say what is in use: it still knows what ended a minute ago.
    """
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0]
    busy = _busy_share(sample)
    if (load / cores / 2 if busy is None else busy) < BUSY:
        return ""
    used = "" if busy is None else f", {busy:.0%} of the CPU in use"
    return f"others were at work: load average {load:.1f} on {cores} cores before we began{used}"


def _busy_share(seconds: float) -> float | None:
    try:
        before = _cpu_times()
        time.sleep(seconds)
        after = _cpu_times()
    except OSError:
        return None
    spent = [b - a for a, b in zip(before, after, strict=True)]
    idle = spent[3] + spent[4]
    return 1 - idle / sum(spent) if sum(spent) else None


def _cpu_times() -> list[int]:
    with Path("/proc/stat").open() as stat:
        return [int(field) for field in stat.readline().split()[1:9]]
