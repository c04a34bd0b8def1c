"""`zkms pub` and `zkms sub`, in two terminals."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

import zkms
from tests.support.cli import COMMAND, Cli
from zkms.cli.exit_codes import Exit
from zkms.server.server import Server


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """What a command that ends by itself has returned and printed."""
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_a_message_goes_from_one_terminal_to_the_other(cli: Cli) -> None:
    """Published in one process, printed by another, which ends after the count."""
    with cli.subscriber("news", "--count", "1") as sub:
        done = cli("pub", "news", "hello world")
        assert done.returncode == Exit.OK
        assert done.stdout == "Published 1 message to 'news': 1 subscription.\n"
        assert finished(sub) == (Exit.OK, "hello world\n", "")


def test_lines_of_standard_input_are_messages(cli: Cli) -> None:
    """10,000 lines, the last without a newline and one of them empty, arrive as they are and in order."""
    lines = [*(f"line {i}" for i in range(9_998)), "", "ünïcödé"]
    with cli.subscriber("news", "--count", "10000") as sub:
        done = cli("pub", "news", "--stdin", "--json", stdin="\n".join(lines))
        assert json.loads(done.stdout)["messages"] == 10_000
        assert finished(sub)[:2] == (Exit.OK, "\n".join(lines) + "\n")


def test_a_slow_stream_is_not_held_back(cli: Cli) -> None:
    """A line is published when it is there, although the input goes on."""
    with (
        cli.subscriber("news", "--count", "1") as sub,
        subprocess.Popen([*COMMAND, "pub", "news", "--stdin"], env=cli.environ, stdin=subprocess.PIPE) as pub,
    ):
        assert pub.stdin is not None
        pub.stdin.write(b"first\n")
        pub.stdin.flush()
        assert finished(sub)[:2] == (Exit.OK, "first\n")
        pub.stdin.close()
        assert pub.wait(timeout=30) == Exit.OK


def test_count_repeats_the_data(cli: Cli) -> None:
    """--count N publishes N messages, which may be more than one call takes."""
    with cli.subscriber("news", "--count", "6000") as sub:
        assert "Published 6,000 messages" in cli("pub", "news", "again", "--count", "6000").stdout
        assert finished(sub)[:2] == (Exit.OK, "again\n" * 6000)


def test_json_data_arrives_as_what_it_stands_for(cli: Cli) -> None:
    """Key, headers and structured data, seen as JSON lines by the subscriber."""
    with cli.subscriber("news", "--count", "2", "--json") as sub:
        cli("pub", "news", '{"id": 42}', "--json-data", "--key", "42", "--header", "by=ann", "--header", "a=b=c")
        cli("pub", "news", "plain")
        code, out, _ = finished(sub)
    first, second = map(json.loads, out.splitlines())
    assert code == Exit.OK
    assert first["data"] == {"id": 42}
    assert (first["key"], first["headers"], first["topic"]) == ("42", {"by": "ann", "a": "b=c"}, "news")
    assert (second["data"], second["key"], second["headers"]) == ("plain", None, {})
    assert abs(second["published_at"] - time.time()) < 60


def test_data_that_is_not_json_is_refused(cli: Cli) -> None:
    """Nothing is published, and the sentence shows what is wrong."""
    done = cli("pub", "news", "{oops", "--json-data", "--if-nobody", "drop")
    assert done.returncode == Exit.USAGE
    assert "'{oops' is not JSON" in done.stderr


@pytest.mark.parametrize(
    ("raw", "sentence"), [(b"fine\n\xff\xfe\n", "line 2 of standard input is not UTF-8"), (b"x" * 600_000, "too large")]
)
def test_input_that_cannot_be_messages(raw: bytes, sentence: str, cli: Cli) -> None:
    """Bytes that are not text and lines without end are refused with a sentence."""
    command = [*COMMAND, "pub", "news", "--stdin", "--if-nobody", "drop"]
    done = subprocess.run(command, env=cli.environ, input=raw, capture_output=True, timeout=60)
    assert done.returncode == Exit.ERROR
    assert sentence in done.stderr.decode()


def test_bytes_are_shown_safely(cli: Cli, bus: zkms.Bus) -> None:
    """What is not text is escaped for people and base64 for programs."""
    with cli.subscriber("news", "--count", "2") as sub:
        bus.publish("news", b"\xff\x00\x1b[2J")
        bus.publish("news", {"n": [1, None]})
        assert finished(sub)[1].splitlines() == [r"\xff\x00\x1b[2J", '{"n":[1,null]}']
    with cli.subscriber("news", "--count", "1", "--json") as sub:
        bus.publish("news", b"\xff\x00")
        assert json.loads(finished(sub)[1])["data_base64"] == "/wA="


def test_a_terminal_gets_no_control_characters(cli: Cli, bus: zkms.Bus, eventually: Callable[..., None]) -> None:
    """Text that would clear the screen or ring the bell is escaped where stdout is a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([*COMMAND, "sub", "news", "--count", "1"], env=cli.environ, stdout=theirs) as process:
        eventually(lambda: bus.subscriptions("news"))
        bus.publish("news", "\x1b[2Jhidden\a", key="k")
        assert process.wait(timeout=30) == Exit.OK
    os.close(theirs)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    assert r"[k]" in shown
    assert r"\x1b[2Jhidden\x07" in shown
    assert "\x1b[2J" not in shown


def test_nobody_there_has_an_exit_code(cli: Cli) -> None:
    """5 unless that is fine, said in one sentence that tells what to do."""
    done = cli("pub", "news", "hello")
    assert (done.returncode, done.stdout) == (Exit.NOBODY, "")
    assert done.stderr.startswith("Error: nobody subscribes to 'news'")
    assert "--if-nobody drop" in done.stderr
    dropped = cli("pub", "news", "hello", "--if-nobody", "drop")
    assert dropped.returncode == Exit.OK
    assert dropped.stdout == "Nobody subscribes to 'news': 1 message dropped.\n"


def test_wait_names_who_has_acked(cli: Cli) -> None:
    """A subscriber acks what it has printed."""
    with cli.subscriber("news") as sub:  # no count: one that ends at once may be gone before the ack is seen
        done = cli("pub", "news", "hello", "--wait", "20")
        assert done.returncode == Exit.OK
        assert "acked" in done.stdout
        as_json = json.loads(cli("pub", "news", "hello", "--wait", "20", "--json").stdout)
        assert as_json["acked"] == as_json["subscriptions"]
        assert (as_json["pending"], as_json["gone"]) == ([], {})
        sub.send_signal(signal.SIGINT)
        assert finished(sub)[:2] == (Exit.INTERRUPTED, "hello\nhello\n")


def test_wait_names_who_has_not(cli: Cli, bus: zkms.Bus) -> None:
    """Exit code 4 if somebody did not ack in time."""
    subscription = bus.subscribe("news", ack="manual")
    done = cli("pub", "news", "hello", "--wait", "0.3", "--json")
    assert done.returncode == Exit.NOT_IN_TIME
    assert json.loads(done.stdout)["pending"] == [subscription.id]
    assert "pending" in cli("pub", "news", "hello", "--wait", "0.1").stdout


def test_a_message_that_is_too_large_is_one_sentence(cli: Cli, bus: zkms.Bus) -> None:
    """Over ZooKeeper's limit: exit code 1, the size and the limit."""
    bus.subscribe("news")
    command = [*COMMAND, "pub", "news", "--stdin"]
    done = subprocess.run(command, env=cli.environ, input="x" * 523_000, capture_output=True, text=True, timeout=60)
    assert done.returncode == Exit.ERROR
    assert "does not fit into one transaction" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_nothing_in_time_has_an_exit_code(cli: Cli) -> None:
    """4 if nothing came, or less than the count; 0 if something came and no count was given."""
    nothing = cli("sub", "news", "--timeout", "0.2")
    assert nothing.returncode == Exit.NOT_IN_TIME
    assert nothing.stderr.splitlines()[-1] == "Error: nothing received in 0.2 s"
    with cli.subscriber("news", "--count", "3", "--timeout", "3") as sub:
        cli("pub", "news", "only one")
        code, out, err = finished(sub)
        assert (code, out) == (Exit.NOT_IN_TIME, "only one\n")
        assert "1 of 3 messages received" in err
    with cli.subscriber("news", "--timeout", "3") as sub:
        cli("pub", "news", "only one")
        assert finished(sub)[:2] == (Exit.OK, "only one\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_subscriber_leaves_nothing_behind(number: signal.Signals, cli: Cli, bus: zkms.Bus) -> None:
    """Ctrl-C and SIGTERM: exit code 130, no traceback, and registration and queue are gone at once."""
    with cli.subscriber("news") as sub:
        assert len(bus.subscriptions("news")) == 1
        sub.send_signal(number)
        code, _, err = finished(sub)
    assert code == Exit.INTERRUPTED
    assert "Traceback" not in err
    assert bus.subscriptions("news") == []
    assert bus.queues() == []


def test_a_reader_that_has_enough_ends_the_subscriber(cli: Cli, bus: zkms.Bus) -> None:
    """`zkms sub news | head -1` ends at the next message, with code 0 and silently."""
    with cli.subscriber("news") as sub:
        assert sub.stdout is not None
        bus.publish("news", "one")
        assert sub.stdout.readline() == "one\n"
        sub.stdout.close()
        bus.publish("news", "two")
        assert sub.wait(timeout=30) == Exit.OK
        assert sub.stderr is not None
        assert sub.stderr.read() == ""


def test_a_gap_is_told_on_stderr(cli: Cli, bus: zkms.Bus, zookeeper: Server, eventually: Callable[..., None]) -> None:
    """Entries that somebody removes before they were read are announced, and the rest goes on."""
    with cli.subscriber("news", "--count", "1") as sub:
        sub.send_signal(signal.SIGSTOP)
        for _ in range(5):
            bus.publish("news", "lost")
        [queue] = bus.queues()
        assert cli("purge", queue.subscription, "news", "--yes").returncode == Exit.OK
        bus.publish("news", "kept")
        sub.send_signal(signal.SIGCONT)
        code, out, err = finished(sub)
    assert (code, out) == (Exit.OK, "kept\n")
    assert err.count("Gap: messages may have been missed here") == 1


def test_garbage_is_told_on_stderr(cli: Cli, bus: zkms.Bus, zookeeper: Server, kazoo: Any) -> None:
    """What another program wrote into the queue is reported, and blocks nothing."""
    with cli.subscriber("news", "--count", "1") as sub:
        [queue] = bus.queues()
        kazoo.create(f"{bus.parts.tree.queue(queue.subscription, 'news')}/intruder", b"\x00")
        bus.publish("news", "fine")
        code, out, err = finished(sub)
    assert (code, out) == (Exit.OK, "fine\n")
    assert "Not shown:" in err
    assert "intruder" in err


def test_progress_shows_only_on_a_terminal(cli: Cli, bus: zkms.Bus) -> None:
    """A count appears on a terminal's stderr after a second, and never in a file."""
    bus.subscribe("news", lambda _message: None)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "pub", "news", "--stdin"],
        env=cli.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    ) as pub:
        assert pub.stdin is not None
        deadline = time.monotonic() + 2.5
        while time.monotonic() < deadline:
            pub.stdin.write(b"x\n")
            pub.stdin.flush()
            time.sleep(0.05)
        pub.stdin.close()
        assert pub.wait(timeout=30) == Exit.OK
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert " messages, " in shown
    assert sys.executable not in shown
