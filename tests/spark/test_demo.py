"""The demo ends with a report on itself, and the report tells what happened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def test_the_demos_report_accounts_for_the_killed_node(tmp_path: Path) -> None:
    """Nothing lost, nothing twice; what waited for the killed node was purged. As `make demo` does it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ZKMS_")}
    done = subprocess.run(
        [sys.executable, "-m", "zkms", "demo", "--report", "page.html", "--json"],
        cwd=tmp_path,
        env=inherited,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert "Every guarantee that could be checked was kept." in done.stderr
    purged = f"{summary['purged']} messages were purged with the queues of subscribers that had gone (node-b)."
    assert purged in done.stderr
    page = (tmp_path / "page.html").read_text()
    assert "Every guarantee that could be checked was kept." in page
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
