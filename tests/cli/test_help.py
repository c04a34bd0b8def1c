"""What `zkms` says about itself, and how it says that something is wrong."""

from __future__ import annotations

import os
import re
import socket
import socketserver
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from kazoo.client import KazooClient

from tests.support.cli import Cli
from zkms.cli import COMMANDS, main
from zkms.cli.exit_codes import MEANING, Exit
from zkms.cli.failure import as_failure
from zkms.config import DEFAULT_HOSTS
from zkms.errors import ConnectionLost, InvalidTopic, NoSubscribers, Timeout, Unauthorised, ZkmsError
from zkms.server.ports import free_ports
from zkms.server.server import Server
from zkms.version import __version__


def test_help_lists_commands_and_exit_codes(lost: Cli) -> None:
    """`zkms --help` names every command, every exit code, and where credentials come from."""
    done = lost("--help")
    assert done.returncode == Exit.OK
    for name in (*COMMANDS, *MEANING.values(), "ZKMS_HOSTS", "ZKMS_ROOT", "ZKMS_AUTH", "ZKMS_TLS_CA"):
        assert name in done.stdout
    for code in Exit:
        assert re.search(rf"^  {int(code)} +\w", done.stdout, re.MULTILINE)


def test_help_imports_no_command() -> None:
    """The list of commands comes from a table, so that help is there at once."""
    code = (
        "import sys; from zkms.cli import main; main(['--help'], standalone_mode=False); "
        "print([m for m in sys.modules if m.startswith(('zkms.cli.messages', 'zkms.cli.analyse', 'zkms.testing', "
        "'zkms.server', 'pyspark'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help(name: str, lost: Cli) -> None:
    """Each one is where the table says, explains itself, and its options."""
    done = lost(name, "--help")
    assert done.returncode == Exit.OK, done.stderr
    assert f"Usage: zkms {name}" in done.stdout
    assert "--help" in done.stdout


def test_no_secret_can_be_given_on_the_command_line() -> None:
    """Other users of a machine see command lines."""
    context = click.Context(main)
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        options = [option for parameter in command.params for option in parameter.opts]
        assert not [option for option in options if re.search("auth|password|secret|token", option)]


def test_the_version_is_told(lost: Cli) -> None:
    """`zkms --version`, and nothing else."""
    assert lost("--version").stdout == f"zkms {__version__}\n"


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["--json", "server"], "'zkms server' does not take --json"),
        (["pub"], "Missing argument 'TOPIC'"),
        (["pub", "news"], "give either DATA or --stdin"),
        (["pub", "news", "x", "--stdin"], "give either DATA or --stdin"),
        (["pub", "news", "--stdin", "--count", "2"], "does not go with --stdin"),
        (["pub", "news", "x", "--header", "plain"], "NAME=VALUE"),
        (["pub", "news", "x", "--wait", "-1"], "--wait"),
        (["pub", "a/b", "x"], "invalid topic 'a/b': it contains '/'"),
        (["pub", "", "x"], "invalid topic '': it is empty"),
        (["sub", ".."], "invalid topic '..'"),
        (["sub", "bell\a"], r"it contains '\x07'"),
        (["queues", "--topic", "x" * 300], "longer than 255 bytes"),
        (["peek", "a/b", "news"], "invalid subscription"),
        (["purge", "me", "zookeeper"], "reserves the name"),
        (["topics", "--root", "relative", "--hosts", "localhost"], "invalid root 'relative'"),
        (["topics", "--hosts", "localhost:port"], "give 'host:port,host:port'"),
    ],
)
def test_wrong_usage_is_one_sentence(args: list[str], sentence: str, lost: Cli) -> None:
    """Exit code 2, the reason at the end, no traceback, and no attempt to connect."""
    done = lost(*args)
    assert done.returncode == Exit.USAGE, done.stderr
    assert sentence in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_without_a_server_it_says_how_to_start_one(lost: Cli) -> None:
    """Where nothing listens on the default port: exit code 3 and the command to type."""
    host, port = DEFAULT_HOSTS.split(":")
    with socket.socket() as probe:
        if probe.connect_ex((host, int(port))) == 0:
            pytest.skip(f"something listens on {DEFAULT_HOSTS}")
    for command in (["topics"], ["pub", "news", "x"], ["sub", "news"], ["doctor"]):
        done = lost(*command)
        assert done.returncode == Exit.NO_ZOOKEEPER
        assert "zkms server" in done.stderr
        assert len(done.stderr.splitlines()) == 1


class Stranger(socketserver.BaseRequestHandler):
    """A server of another kind."""

    def handle(self) -> None:
        """Answer as a web server does."""
        self.request.recv(1)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_a_server_that_does_not_answer_is_named(lost: Cli) -> None:
    """A closed port, and a server that is no ZooKeeper: exit code 3 and what was found there."""
    [port] = free_ports(1)
    done = lost("topics", "--hosts", f"127.0.0.1:{port}")
    assert done.returncode == Exit.NO_ZOOKEEPER
    assert f"127.0.0.1:{port}: Connection refused" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Stranger) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        where = f"127.0.0.1:{stranger.server_address[1]}"
        done = lost("topics", "--hosts", where)
        stranger.shutdown()
    assert done.returncode == Exit.NO_ZOOKEEPER
    assert f"{where} is no ZooKeeper" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_options_may_stand_on_both_sides(cli: Cli, zookeeper: Server, zookeeper_root: str) -> None:
    """--json, --hosts and --root before or after the command's name; the one nearer to the command wins."""
    assert cli("--json", "topics").stdout == "[]\n"
    assert cli("topics", "--json").stdout == "[]\n"
    elsewhere = Cli(ZKMS_HOSTS="127.0.0.1:1", ZKMS_ROOT="/nowhere")
    before = elsewhere("--hosts", zookeeper.hosts, "--root", zookeeper_root, "topics", "--json")
    assert (before.returncode, before.stdout) == (Exit.OK, "[]\n")
    both = elsewhere("--hosts", "127.0.0.1:1", "topics", "--hosts", zookeeper.hosts)
    assert both.returncode == Exit.OK, both.stderr


def test_verbose_shows_the_log(cli: Cli) -> None:
    """-v, on either side, brings the library's log to stderr, and leaves stdout alone."""
    assert cli("topics").stderr == ""
    for args in (["-v", "topics"], ["topics", "-v"]):
        done = cli(*args)
        assert "INFO zkms.zookeeper: session connected" in done.stderr
        assert done.stdout == "No topics.\n"


@pytest.fixture
def secret(zookeeper: Server, zookeeper_root: str) -> Iterator[str]:
    """Credentials; what was made with them is deleted with them."""
    yield "digest:ann:s3cret"
    client = KazooClient(zookeeper.hosts, auth_data={("digest", "ann:s3cret")})
    client.start(timeout=20)
    client.delete(zookeeper_root, recursive=True)
    client.stop()
    client.close()


def test_credentials_come_from_environment_or_file(cli: Cli, secret: str, tmp_path: Path) -> None:
    """A tree made with ZKMS_AUTH is closed to others, open with the same from a file; none is ever shown."""
    assert cli("pub", "news", "x", "--if-nobody", "drop", ZKMS_AUTH=secret).returncode == Exit.OK
    refused = cli("queues")
    assert refused.returncode == Exit.ERROR
    assert "ZKMS_AUTH" in refused.stderr
    file = tmp_path / "auth"
    file.write_text(f"{secret}\n")
    file.chmod(stat.S_IRUSR | stat.S_IWUSR)
    opened = cli("queues", ZKMS_AUTH_FILE=str(file))
    assert (opened.returncode, opened.stderr) == (Exit.OK, "")
    file.chmod(0o644)
    refused = cli("queues", ZKMS_AUTH_FILE=str(file))
    assert (refused.returncode, "can be read by others" in refused.stderr) == (Exit.ERROR, True)
    assert "s3cret" not in cli("queues", "-vv", ZKMS_AUTH=secret).stderr


@pytest.mark.parametrize(
    ("environ", "code", "sentence"),
    [
        ({"ZKMS_AUTH": "ann"}, Exit.USAGE, "ZKMS_AUTH must be SCHEME:USER:PASSWORD"),
        ({"ZKMS_AUTH_FILE": "/nonexistent/file"}, Exit.ERROR, "cannot be read: No such file"),
        ({"ZKMS_TLS_CA": "/nonexistent/ca.pem"}, Exit.USAGE, "'/nonexistent/ca.pem' does not exist"),
    ],
)
def test_bad_credentials_are_one_sentence(environ: dict[str, str], code: Exit, sentence: str, cli: Cli) -> None:
    """What is wrong with them, without showing them."""
    done = cli("topics", **environ)
    assert done.returncode == code
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConnectionLost("gone"), Exit.NO_ZOOKEEPER),
        (Timeout("late"), Exit.NOT_IN_TIME),
        (NoSubscribers("news"), Exit.NOBODY),
        (InvalidTopic("/", "no"), Exit.USAGE),
        (Unauthorised("no"), Exit.ERROR),
        (ZkmsError("else"), Exit.ERROR),
    ],
)
def test_errors_have_their_exit_codes(error: ZkmsError, code: Exit) -> None:
    """One mapping for all commands."""
    assert as_failure(error).exit_code == code


def test_a_closed_pipe_is_no_error(cli: Cli) -> None:
    """`zkms ... | head -1`: the rest goes nowhere, silently."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "zkms", "topics"], env=cli.environ, stdout=write, stderr=subprocess.PIPE, timeout=60
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (Exit.OK, b"")
