"""`zkms backup` and `zkms restore`, from a shell."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cli import Quick
from zkms import Bus
from zkms.backup.archive import BadBackup
from zkms.backup.restore import RootInUse
from zkms.cli.exit_codes import Exit
from zkms.server.server import Server


def test_a_backup_and_back(bus: Bus, quick: Quick, zookeeper_root: str, tmp_path: Path) -> None:
    """What is said on the way, and how it is refused to do harm."""
    bus.subscribe("orders", name="billing").close()
    bus.publish_many("orders", range(5))
    file = str(tmp_path / "kept")
    done = quick("backup", file)
    assert done.returncode == Exit.OK, done.stderr
    assert "Backed up 1 subscription with 5 messages to be read, 0 delayed messages, 0 dead letters" in done.stdout
    again = quick("backup", file)
    assert again.returncode == Exit.USAGE
    assert "--force" in again.stderr + again.stdout
    assert json.loads(quick("backup", "--json", "--force", file).stdout)["messages"] == 5
    checked = quick("restore", "--dry-run", file)
    assert checked.returncode == Exit.OK
    assert (
        f"is whole: 1 subscription with 5 messages to be read, 0 delayed messages, 0 dead letters, of {zookeeper_root}"
        in (checked.stdout)
    )
    with pytest.raises(RootInUse, match="--add"):
        quick("restore", file)
    other = f"{zookeeper_root}/restored"
    restored = quick("restore", "--root", other, file)
    assert restored.returncode == Exit.OK, restored.stderr
    assert "Restored 1 subscription with 1 entry, 0 delayed messages, 0 dead letters." in restored.stdout
    (group,) = json.loads(quick("groups", "--json", "--root", other).stdout)
    assert (group["name"], group["messages"]) == ("billing", 5)
    Path(file).write_bytes(b"zkms backup 1\n")
    with pytest.raises(BadBackup):
        quick("restore", "--dry-run", file)


def test_a_full_disk_ends_a_backup_with_a_sentence(
    bus: Bus, zookeeper: Server, zookeeper_root: str, tmp_path: Path
) -> None:
    """And nothing is left of it, nor of what was there before lost."""
    bus.subscribe("orders", name="billing").close()
    bus.publish_many("orders", ["x" * 1000] * 50)
    file = tmp_path / "kept"
    file.write_text("of yesterday")
    done = subprocess.run(
        [sys.executable, "-m", "zkms", "backup", "--force", str(file)],
        env=os.environ | {"ZKMS_HOSTS": zookeeper.hosts, "ZKMS_ROOT": zookeeper_root},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )
    assert (done.returncode, done.stdout) == (Exit.ERROR, "")
    assert "cannot be written: File too large; nothing was backed up" in done.stderr
    assert "Traceback" not in done.stderr
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"kept": "of yesterday"}


def test_a_backup_that_is_not_all_says_so(
    bus: Bus,
    quick: Quick,
    zookeeper_root: str,
    tmp_path: Path,
    lock: Callable[[str], str],
) -> None:
    """By its exit code, when it is made; and in words again, when it is restored."""
    bus.subscribe("orders", name="billing").close()
    locked = lock(bus.parts.tree.queue("billing", "orders"))
    done = quick("backup", str(tmp_path / "kept"))
    assert done.returncode == Exit.AMISS
    assert f"permission to read: 1 znode: {locked}." in done.stderr
    restored = quick("restore", "--root", f"{zookeeper_root}/restored", str(tmp_path / "kept"))
    assert restored.returncode == Exit.OK
    assert locked in restored.stderr
