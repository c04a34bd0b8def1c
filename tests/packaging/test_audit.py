"""The audit of what zkms depends on: what is known fails the check, and what cannot be asked is said."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from zkms.server.ports import free_ports

AUDIT = Path(__file__).parents[2] / ".ci" / "audit.py"


class Osv(BaseHTTPRequestHandler):
    """Knows of one vulnerability."""

    def do_POST(self) -> None:
        """As osv.dev answers a batch."""
        queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        bad = {"name": "jinja2", "ecosystem": "PyPI"}
        results = [{"vulns": [{"id": "GHSA-1"}]} if q["package"] == bad else {} for q in queries]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"results": results}).encode())

    def log_message(self, *_args: object) -> None:
        """Not on the tests' output."""


@pytest.fixture
def osv() -> Iterator[str]:
    """Somebody to ask."""
    with HTTPServer(("127.0.0.1", 0), Osv) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/querybatch"
        server.shutdown()


def audit(folder: Path, url: str, *pins: str) -> tuple[int, str]:
    """Exit code and output."""
    file = folder / "constraints.txt"
    file.write_text("# a comment\n" + "\n".join(pins))
    done = subprocess.run([sys.executable, AUDIT, file, "--osv", url], capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_a_known_vulnerability_fails_it(tmp_path: Path, osv: str) -> None:
    """With its name; what nothing is known of passes."""
    code, said = audit(tmp_path, osv, "click==8.1.0", "jinja2==2.0  # old")
    assert (code, said.splitlines()) == (
        1,
        ["audit: jinja2 2.0: GHSA-1", "audit: 1 of 2 versions have known vulnerabilities"],
    )
    assert audit(tmp_path, osv, "click==8.1.0") == (0, "audit: 0 of 1 versions have known vulnerabilities\n")


def test_where_nobody_can_be_asked_it_says_so(tmp_path: Path) -> None:
    """And does not fail: that is no finding."""
    [port] = free_ports(1)
    code, said = audit(tmp_path, f"http://127.0.0.1:{port}/", "click==8.1.0")
    assert code == 0
    assert "could not be asked" in said
    assert "nothing is known of these 1 versions" in said
