"""`zkms sub` with --name, --group, --drain, --exec and --post: messages as jobs, from a shell."""

from __future__ import annotations

import http.server
import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

import zkms
from tests.support.buses import Eventually
from tests.support.cli import Cli, Quick
from zkms.cli.exit_codes import Exit
from zkms.cli.messages.action import Command, Webhook


def script(folder: Path, body: str) -> str:
    """A command line that runs this Python."""
    path = folder / "job.py"
    path.write_text(body)
    return f"{sys.executable} '{path}'"


def test_a_durable_subscription_goes_on_where_it_has_stopped(quick: Quick, bus: zkms.Bus) -> None:
    """What was published while nobody read it is printed by the next one, once."""
    assert quick("sub", "news", "--name", "audit", "--drain").returncode == Exit.OK
    bus.publish("news", "one")
    bus.publish("news", "two")
    assert quick("sub", "news", "--name", "audit", "--count", "1").stdout == "one\n"
    bus.publish("news", "three")
    done = quick("sub", "news", "--name", "audit", "--drain", "--json")
    assert [json.loads(line)["data"] for line in done.stdout.splitlines()] == ["two", "three"]
    assert json.loads(done.stdout.splitlines()[0])["attempts"] == 1


def test_a_group_is_drained(quick: Quick, bus: zkms.Bus) -> None:
    """All that waits in all partitions, and then the command ends by itself."""
    bus.create_group("jobs", "workers", partitions=4)
    bus.publish_many("jobs", map(str, range(500)), key=str)
    done = quick("sub", "jobs", "--group", "workers", "--drain", "--timeout", "60")
    assert (done.returncode, sorted(map(int, done.stdout.split()))) == (Exit.OK, list(range(500)))
    assert bus.groups()[0].messages == 0


def test_who_reads_it_is_told(cli: Cli, bus: zkms.Bus) -> None:
    """A second reader is told who has it, by process and host; --takeover takes it, and the first one is told so."""
    with cli.subscriber("news", "--name", "audit") as first:
        done = cli("sub", "news", "--name", "audit", "--timeout", "1")
        assert done.returncode == Exit.IN_USE
        assert f"process {first.pid} on" in done.stderr
        assert "--takeover" in done.stderr
        with cli.subscriber("news", "--name", "audit", "--takeover", "--count", "1") as second:
            _, err = first.communicate(timeout=60)
            assert first.returncode == Exit.IN_USE
            assert f"process {second.pid} on" in err
            bus.publish("news", "hello")
            assert second.communicate(timeout=60)[0] == "hello\n"


def test_not_drained_in_time_has_an_exit_code(quick: Quick, bus: zkms.Bus) -> None:
    """Somebody else has a message in hand: something is waiting, so it is not the end."""
    sub = bus.subscribe("jobs", group="workers", partitions=1)
    bus.publish("jobs", "x")
    assert sub.get(10.0) is not None
    done = quick("sub", "jobs", "--group", "workers", "--drain", "--timeout", "1.5")
    assert (done.returncode, "not drained in" in done.stderr) == (Exit.NOT_IN_TIME, True)


def test_a_command_gets_data_and_environment(cli: Cli, bus: zkms.Bus, tmp_path: Path) -> None:
    """The data on standard input, the rest in ZKMS_ variables; exit code 0 acks."""
    bus.subscribe("jobs", name="hook").close()
    bus.publish("jobs", {"n": 1}, key="k'; rm -rf $HOME", headers={"by": "ann"}, id="order-1")
    bus.publish("jobs", b"\x00\xff")
    names = ("TOPIC", "ID", "KEY", "ATTEMPT", "HEADERS")
    line = script(
        tmp_path,
        "import os, sys\n"
        f"print([os.environ['ZKMS_' + name] for name in {names}], sys.stdin.buffer.read(), flush=True)\n",
    )
    done = cli("sub", "jobs", "--name", "hook", "--drain", "--exec", line)
    first, second = done.stdout.splitlines()
    assert "order-1" in first
    assert repr(b'{"n":1}') in first
    assert '{"by":"ann"}' in first
    assert "; rm -rf $HOME" in first
    assert second.endswith(repr(b"\x00\xff"))
    assert done.stderr.endswith("2 messages done, 0 dead, 0 failed attempts.\n")
    assert bus.groups()[0].messages == 0


def test_a_command_that_fails_is_tried_again(cli: Cli, bus: zkms.Bus, tmp_path: Path) -> None:
    """Until it succeeds; attempts are counted, and each outcome is a line of JSON."""
    bus.subscribe("jobs", name="hook").close()
    bus.publish("jobs", "x", id="order-1")
    line = script(tmp_path, "import os, sys\nprint('noise')\nsys.exit(0 if os.environ['ZKMS_ATTEMPT'] == '3' else 7)\n")
    done = cli("sub", "jobs", "--name", "hook", "--drain", "--backoff", "0.1", "--exec", line, "--json")
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(o["attempt"], o["outcome"], o["reason"]) for o in outcomes] == [
        (1, "nacked", "exit code 7"),
        (2, "nacked", "exit code 7"),
        (3, "acked", ""),
    ]
    assert "noise" in done.stderr


def test_a_command_that_always_fails_leaves_a_dead_letter(cli: Cli, bus: zkms.Bus) -> None:
    """With the last error; the others are not held up, and the letter can be requeued."""
    bus.create_group("jobs", "workers", partitions=1)
    for number in range(3):
        bus.publish("jobs", f"{number}\n", key=str(number))
    options = ("--group", "workers", "--drain", "--max-attempts", "2", "--backoff", "0.1", "--timeout", "60")
    done = cli("sub", "jobs", *options, "--exec", "grep -v 1")
    assert (done.returncode, sorted(done.stdout.split())) == (Exit.OK, ["0", "2"])
    assert "exit code 1; a dead letter" in done.stderr
    [letter] = bus.dead_letters()
    assert (letter.data, letter.reason, letter.error) == ("1\n", "not done in 2 attempts", "exit code 1")
    assert cli("dead", "requeue", "--all").returncode == Exit.OK
    assert cli("sub", "jobs", *options, "--exec", "cat").stdout == "1\n"


def test_a_command_is_ended_when_its_time_is_over(cli: Cli, bus: zkms.Bus, tmp_path: Path) -> None:
    """With all that it has started, also if it does not listen; the message is given back."""
    bus.create_group("jobs", "workers", partitions=1)
    bus.publish("jobs", "x")
    pids = tmp_path / "pids"
    line = script(
        tmp_path,
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(600)\n",
    )
    options = ("--group", "workers", "--count", "1", "--max-attempts", "1", "--ttr", "3", "--json")
    done = cli("sub", "jobs", *options, "--exec", line)
    assert json.loads(done.stdout)["reason"] == "not done within 3 s, and ended"
    for pid in map(int, pids.read_text().split()):
        assert _is_gone(pid)


def _is_gone(pid: int) -> bool:
    """Ended; what nobody has waited for yet is a zombie, in containers for ever."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def test_an_interrupted_command_gives_the_message_back(
    cli: Cli, bus: zkms.Bus, tmp_path: Path, eventually: Eventually
) -> None:
    """Ctrl-C ends the command too, and the message is delivered to the next one."""
    bus.subscribe("jobs", name="hook").close()
    bus.publish("jobs", "x")
    began = tmp_path / "began"
    line = script(tmp_path, f"import os, time\nopen({str(began)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n")
    with cli.subscriber("jobs", "--name", "hook", "--exec", line) as process:
        eventually(lambda: began.exists() and began.read_text())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == Exit.INTERRUPTED
    assert _is_gone(int(began.read_text()))
    assert cli("sub", "jobs", "--name", "hook", "--drain").stdout == "x\n"


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers as it is told, and remembers what came."""

    answers: ClassVar[list[int]] = []
    seen: ClassVar[list[tuple[dict[str, str], bytes]]] = []

    def do_POST(self) -> None:
        """As if it were somebody's service."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((dict(self.headers), body))
        status = self.answers.pop(0) if self.answers else 200
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        answer = f"answer {status}".encode()
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Not on stderr."""


@pytest.fixture
def service() -> Iterator[str]:
    """The URL of a service of the test's own."""
    _Handler.answers.clear()
    _Handler.seen.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook?a=b"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_post_carries_the_message(quick: Quick, bus: zkms.Bus, service: str) -> None:
    """Its data as the body, the rest as headers, credentials from the environment; 2xx acks."""
    bus.subscribe("jobs", name="hook").close()
    bus.publish("jobs", {"n": 1}, key="schlüssel\n", headers={"by": "ann"}, id="order-1")
    bus.publish("jobs", "text")
    _Handler.answers[:] = [204, 201]
    done = quick("sub", "jobs", "--name", "hook", "--drain", "--post", service, ZKMS_POST_AUTHORIZATION="Bearer x")
    assert done.returncode == Exit.OK, done.stderr
    (first, body), (second, text) = _Handler.seen
    assert (body, first["Content-Type"], first["Authorization"]) == (b'{"n":1}', "application/json", "Bearer x")
    assert (first["ZKMS-Topic"], first["ZKMS-Id"], first["ZKMS-Attempt"]) == ("jobs", "order-1", "1")
    assert (first["ZKMS-Key"], first["ZKMS-Headers"]) == ("schl%C3%BCssel%0A", '{"by":"ann"}')
    assert (text, second["Content-Type"]) == (b"text", "text/plain; charset=utf-8")
    assert "ZKMS-Key" not in second


def test_answers_decide_what_becomes_of_a_message(quick: Quick, bus: zkms.Bus, service: str) -> None:
    """5xx, 408, 429 and redirects are tried again; other 4xx are dead letters at once, with the answer as reason."""
    bus.create_group("jobs", "hooks", partitions=1)
    bus.publish("jobs", "a", key="a", id="fine")
    _Handler.answers[:] = [500, 408, 429, 302, 200, 404]
    options = ("--group", "hooks", "--max-attempts", "9", "--backoff", "0.01", "--drain", "--json")
    done = quick("sub", "jobs", *options, "--post", service)
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert [o["outcome"] for o in outcomes] == ["nacked"] * 4 + ["acked"]
    assert [o["reason"][:8] for o in outcomes] == ["HTTP 500", "HTTP 408", "HTTP 429", "HTTP 302", ""]
    bus.publish("jobs", "b", id="hopeless")
    done = quick("sub", "jobs", *options, "--post", service)
    assert [json.loads(line)["outcome"] for line in done.stdout.splitlines()] == ["dead"]
    [letter] = bus.dead_letters()
    assert (letter.id, letter.attempts, letter.reason) == ("hopeless", 1, "rejected: HTTP 404 Not Found: answer 404")


def test_a_service_that_is_away_is_tried_again(quick: Quick, bus: zkms.Bus) -> None:
    """Nobody listens there: nothing is lost, the reason is told."""
    bus.subscribe("jobs", name="hook").close()
    bus.publish("jobs", "x")
    done = quick(
        "sub", "jobs", "--name", "hook", "--timeout", "2", "--backoff", "60", "--json", "--post", "http://127.0.0.1:1"
    )  # fmt: skip
    assert done.returncode == Exit.NOT_IN_TIME
    assert json.loads(done.stdout)["reason"].startswith("ConnectionRefusedError")
    assert bus.groups()[0].delayed == 1


def test_an_answer_that_trickles_is_cut_off(bus: zkms.Bus) -> None:
    """Each byte comes in time, and all of them never would: the time to run is for the whole."""
    listener = socket.create_server(("127.0.0.1", 0))

    def trickle() -> None:
        link, _ = listener.accept()
        with link:
            try:
                link.sendall(b"HTTP/1.1 200 OK\r\n")
                while True:
                    link.sendall(b"X")
                    time.sleep(0.1)
            except OSError:
                return

    thread = threading.Thread(target=trickle, daemon=True)
    thread.start()
    sub = bus.subscribe("jobs", name="hook")
    bus.publish("jobs", "x")
    message = sub.get(10.0)
    assert message is not None
    began = time.monotonic()
    outcome = Webhook(f"http://127.0.0.1:{listener.getsockname()[1]}", 1.0)(message)
    assert (outcome.done, outcome.said) == (False, "no answer within 1 s")
    assert time.monotonic() - began < 30
    listener.close()
    thread.join(30)


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["--name", "a", "--group", "b"], "either --name or --group"),
        (["--takeover"], "give --name too"),
        (["--partitions", "4"], "give --group too"),
        (["--drain"], "give --name or --group too"),
        (["--exec", "cat"], "give --name or --group too"),
        (["--name", "a", "--exec", "cat", "--post", "http://localhost"], "either --exec or --post"),
        (["--name", "a", "--exec", "no-such-command-at-all"], "no command 'no-such-command-at-all'"),
        (["--name", "a", "--exec", "cat 'unfinished"], "No closing quotation"),
        (["--name", "a", "--exec", ""], "there is no command"),
        (["--name", "a", "--post", "file:///etc/passwd"], "http:// or https://"),
        (["--name", "a", "--post", "http://user:secret@localhost"], "ZKMS_POST_AUTHORIZATION"),
        (["--name", "a", "--post", "http://localhost:99999"], "Port"),
        (["--group", "a", "--partitions", "0"], "--partitions"),
        (["--group", "a", "--ttr", "0"], "--ttr"),
    ],
)
def test_wrong_usage_of_sub_is_one_sentence(args: list[str], sentence: str, quick: Quick) -> None:
    """Exit code 2 and the reason, before any attempt to connect; a bad name is an error of the library's."""
    done = quick("sub", "jobs", *args)
    assert done.returncode == Exit.USAGE, done.stderr
    assert sentence in done.stderr.splitlines()[-1]
    assert "secret" not in done.stderr


def test_what_a_command_cannot_be_given_is_hopeless(bus: zkms.Bus) -> None:
    """A key with a NUL in it cannot be in an environment: no attempt would do."""
    sub = bus.subscribe("jobs", name="hook")
    bus.publish("jobs", "x", key="a\0b")
    message = sub.get(10.0)
    assert message is not None
    outcome = Command("cat", 5.0)(message)
    assert (outcome.done, outcome.hopeless) == (False, True)


def test_a_command_that_reads_nothing_is_fine(bus: zkms.Bus) -> None:
    """Its input may be closed before all is written."""
    sub = bus.subscribe("jobs", name="hook")
    bus.publish("jobs", "x" * 300_000)
    message = sub.get(10.0)
    assert message is not None
    assert Command("true", 30.0)(message).done
