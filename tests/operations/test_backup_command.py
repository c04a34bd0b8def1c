"""`zkms backup` and `zkms restore`, from a shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.conftest import Quick, quick  # noqa: F401 - a fixture

from zkms import Bus
from zkms.archive import BadBackup
from zkms.cli.exit_codes import Exit
from zkms.restore import RootInUse


def test_a_backup_and_back(bus: Bus, quick: Quick, zookeeper_root: str, tmp_path: Path) -> None:  # noqa: F811
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
