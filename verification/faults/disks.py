"""Small disks that can be filled to the last byte: a tmpfs for each server. Needs root, as mounting does."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from zkms.server.errors import ServerError

SIZE = "48m"
_BALLAST = "ballast"
_PIECE = 64 * 1024


@contextmanager
def small_disks(directory: Path, nodes: int) -> Iterator[list[Path]]:
    """Mount a disk for each server, where EmbeddedZooKeeper(data=directory) stores its data."""
    with ExitStack() as stack:
        yield [stack.enter_context(_mounted(directory / f"node-{number}")) for number in range(1, nodes + 1)]


@contextmanager
def _mounted(path: Path) -> Iterator[Path]:
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    if os.geteuid() != 0 or mount is None or unmount is None:
        raise ServerError("a disk that is full needs a mount of its own, which only root can make")
    path.mkdir(parents=True)
    done = subprocess.run(
        [mount, "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ServerError(f"a disk that is full needs a mount of its own: {done.stderr.strip()}")
    try:
        yield path
    finally:
        # Lazily: a server that is just ending may still have a file open.
        subprocess.run([unmount, "-l", str(path)], check=True)


def fill(disk: Path) -> None:
    """Fill it, so that writes fail."""
    with (disk / _BALLAST).open("ab", buffering=0) as file:
        for size in (_PIECE, 1):
            with suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass


def drain(disk: Path) -> None:
    """Free the space that `fill` took."""
    (disk / _BALLAST).unlink(missing_ok=True)
