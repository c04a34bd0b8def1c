"""Credentials come from files and the environment, and get nowhere else: arguments, logs, output, trails, metrics."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

import zkms
from tests.support.buses import Connect
from zkms.cli.connection import read_auth
from zkms.cli.failure import Failure
from zkms.server.ports import free_ports
from zkms.tree.paths import Tree

from .conftest import ACCESS, auth, who

SECRETS = tuple(word for name in ("carl", "pat", "ann") for word in (auth(name)[1], who(name).rpartition(":")[2]))
"""Passwords, and the hashes of them that ACLs have."""


def secret_file(folder: Path, name: str) -> Path:
    """Somebody's credentials, as ZKMS_AUTH_FILE takes them."""
    path = folder / f"{name}.auth"
    path.touch(mode=0o600)
    path.write_text(":".join(auth(name)) + "\n")
    return path


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """As ssh refuses such a key; nothing was read from it yet, and nothing of it is told."""
    path = secret_file(tmp_path, "ann")
    environ = {"ZKMS_AUTH_FILE": str(path)}
    assert read_auth(environ) == [auth("ann")]
    for mode in (0o640, 0o604, 0o644, 0o666, 0o610):
        path.chmod(mode)
        with pytest.raises(Failure, match=rf"can be read by others, its mode being 0{mode:o}: chmod 600 it") as refusal:
            read_auth(environ)
        assert "s3cret" not in str(refusal.value)
    path.chmod(0o400)
    assert read_auth(environ) == [auth("ann")]


def test_sasl_credentials_come_the_same_way() -> None:
    """Two lines, or one variable."""
    assert read_auth({"ZKMS_AUTH": "sasl:ann:pa:ss"}) == [zkms.Sasl(username="ann", password="pa:ss")]


def test_they_are_in_no_output_no_argument_no_metric_and_no_trail(
    carl: zkms.Bus, hosts: str, tree: Tree, tmp_path: Path
) -> None:
    """Of the commands and the daemon, with everything logged that can be."""
    carl.close()
    environ = {
        **{key: value for key, value in os.environ.items() if not key.startswith("ZKMS_")},
        "ZKMS_HOSTS": hosts,
        "ZKMS_ROOT": tree.root,
        "ZKMS_AUTH_FILE": str(secret_file(tmp_path, "carl")),
    }
    [port] = free_ports(1)
    arguments = ["--metrics-port", str(port), "--log-level", "debug", "--trail", str(tmp_path / "trail")]
    log = tmp_path / "daemon.log"
    found: list[str] = []
    with (
        log.open("w") as output,
        subprocess.Popen(
            [sys.executable, "-m", "zkms", "cleaner", *arguments], env=environ, stdout=output, stderr=output
        ) as daemon,
    ):
        try:
            found.append(_metrics(port))
            found.append(Path(f"/proc/{daemon.pid}/cmdline").read_text())
            for command in (["doctor", "-vv"], ["access", "show", "-vv"]):
                done = subprocess.run(
                    [sys.executable, "-m", "zkms", *command], env=environ, capture_output=True, text=True, timeout=120
                )
                assert done.returncode == 0, done.stdout + done.stderr
                found += [done.stdout, done.stderr]
        finally:
            daemon.terminate()
            daemon.wait(60)
    found.append(log.read_text())
    trails = [path for path in (tmp_path / "trail").rglob("*") if path.is_file()]
    assert trails
    found += [path.read_text(errors="replace") for path in trails]
    assert "by separate roles" in "".join(found)
    for secret in SECRETS:
        assert not any(secret in text for text in found), secret[:4]
    assert not any("s3cret" in text for text in found)


def _metrics(port: int) -> str:
    deadline = time.monotonic() + 90
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                return str(answer.read().decode())
        except OSError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.05)


def test_they_are_in_no_log_no_error_and_no_repr(
    carl: zkms.Bus, connect: Connect, hosts: str, tree: Tree, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """With every logger at DEBUG, kazoo's among them, in a tree with a policy; on success and on failure."""
    caplog.set_level(logging.DEBUG)
    pat, ann = connect("pat", trail=tmp_path), connect("ann", access=ACCESS)
    subscription = ann.subscribe("news", lambda _message: None)
    pat.publish("news", "payload-s3cret").wait(20)
    errors = []
    other = zkms.Access(producers=[who("ann")], subscribers=[who("ann")], cleaners=[who("carl")])
    for options in ({"auth": auth("mallory")}, {"auth": auth("ann"), "access": other}, {"auth": ("digest", "nobody")}):
        with pytest.raises(zkms.ZkmsError) as refusal:
            zkms.connect(hosts, root=tree.root, **options)
        errors.append(str(refusal.value))
    with pytest.raises(zkms.Unauthorised) as refusal:
        pat.subscribe("news")
    shown = [
        repr(pat),
        repr(pat.parts.context.config),
        repr(ann.parts.context.config),
        repr(subscription),
        repr(ACCESS),
        *errors,
        str(refusal.value),
    ]
    shown += [record.getMessage() + str(record.exc_text or "") for record in caplog.records]
    pat.close()
    shown += [path.read_text() for path in tmp_path.rglob("*.jsonl")]
    assert len(caplog.records) > 5
    for secret in (*SECRETS, "s3cret"):
        assert not [text for text in shown if secret in text]


def test_doctor_reports_a_file_that_others_can_read(tmp_path: Path, hosts: str, tree: Tree) -> None:
    """And does not use it."""
    path = secret_file(tmp_path, "ann")
    path.chmod(0o644)
    environ = {**os.environ, "ZKMS_HOSTS": hosts, "ZKMS_ROOT": tree.root, "ZKMS_AUTH_FILE": str(path)}
    done = subprocess.run(
        [sys.executable, "-m", "zkms", "doctor", "--json"], env=environ, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    [file, session] = json.loads(done.stdout)
    assert "can be read by others, its mode being 0644" in file["finding"]
    assert session["check"] == "session"
