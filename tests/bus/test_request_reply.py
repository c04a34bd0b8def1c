"""bus.request(): the answers of every live node or of one member of a group, and who did not answer."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import zkms
from tests.support.buses import Connect, Eventually
from zkms import Bus, InvalidArgument, Message, NoSubscribers
from zkms.request_reply import Question
from zkms.server.server import Server

pytestmark = pytest.mark.on_asyncio_too
LONG = 50.0
"""Seconds within which everybody has answered, on a machine that does much else."""


def test_every_live_node_answers(bus: Bus, connect: Connect) -> None:
    """Each once, with what it said; nobody is missing, so nobody is waited for."""
    subs = {}
    for number in range(3):
        node = connect()
        subs[node.client_id] = node.subscribe("who-has", lambda m, number=number: m.reply(m.data + number)).id
    answers = bus.request("who-has", 40, timeout=LONG)
    assert answers.complete
    assert answers.missing == ()
    assert sorted(answer.data for answer in answers) == [40, 41, 42]
    assert {answer.client: answer.subscription for answer in answers} == subs
    assert all(answer.error is None for answer in answers)
    assert len(answers) == len(answers[:]) == 3


def test_who_does_not_answer_is_named(bus: Bus, connect: Connect) -> None:
    """The others' answers are there all the same."""
    answered = threading.Event()

    def answer(message: Message) -> None:
        message.reply("here")
        answered.set()

    connect().subscribe("who-has", answer)
    silent = connect().subscribe("who-has", lambda message: None)
    answers = bus.request("who-has", "x", timeout=1.0)
    assert silent.id in answers.missing
    assert not answers.complete
    assert answered.wait(LONG)
    assert [answer.data for answer in answers] in (["here"], [])  # the latter on a machine that takes its time


def test_an_error_is_an_answer(bus: Bus, connect: Connect) -> None:
    """Said by the handler, or what a live handler raised."""

    def fail(message: Message) -> None:
        raise LookupError("no such user")

    connect().subscribe("who-has", fail)
    connect().subscribe("who-has", lambda message: message.reply(error="not mine"))
    answers = bus.request("who-has", 42, timeout=LONG)
    assert answers.complete
    assert sorted(str(answer.error) for answer in answers) == ["LookupError: no such user", "not mine"]
    assert [answer.data for answer in answers] == [None, None]


def test_one_member_of_a_group_answers(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """The one that has the partition of the key; and a durable subscription is asked too."""
    members = [
        connect().subscribe("sums", lambda m: m.reply(sum(m.data)), group="adders", partitions=2) for _ in range(2)
    ]
    eventually(lambda: [len(member.partitions) for member in members] == [1, 1])
    for key in (None, "a", "b", "c"):
        answers = bus.request("sums", [1, 2, 3], timeout=LONG, key=key)
        assert [(answer.subscription, answer.data) for answer in answers] == [("adders", 6)]
        assert answers.complete
    connect().subscribe("sums", lambda m: m.reply("noted"), name="audit")
    answers = bus.request("sums", [4], timeout=LONG)
    assert {answer.subscription: answer.data for answer in answers} == {"adders": 4, "audit": "noted"}


def test_a_member_that_fails_at_first_answers_when_it_has_done_it(bus: Bus, connect: Connect) -> None:
    """Jobs are tried again; whoever asked waits on."""

    def handle(message: Message) -> None:
        if message.attempts < 3:
            raise ValueError("not yet")
        message.reply(message.attempts)

    connect().subscribe("jobs", handle, group="workers", partitions=1, backoff=0.05)
    assert [answer.data for answer in bus.request("jobs", 1, timeout=LONG)] == [3]


def test_messages_that_are_pulled_are_answered_too(bus: Bus, connect: Connect) -> None:
    """A request is a message like any other, with headers of its own besides those given."""
    sub = connect().subscribe("who-has")
    gathered: list[Any] = []
    asking = threading.Thread(
        target=lambda: gathered.append(bus.request("who-has", 1, timeout=LONG, headers={"region": "eu"}))
    )
    asking.start()
    message = sub.get(timeout=LONG)
    assert message is not None
    assert message.is_request
    assert message.headers["region"] == "eu"
    message.reply("found")
    asking.join(LONG)
    assert [answer.data for answer in gathered[0]] == ["found"]


def test_many_ask_at_once_and_nobody_gets_anothers_answer(connect: Connect) -> None:
    """Answers are told apart by the request, and go to the client that asked."""
    for _ in range(2):
        connect().subscribe("double", lambda message: message.reply(message.data * 2))
    buses = [connect(), connect()]
    results: dict[int, list[int]] = {}

    def ask(number: int) -> None:
        results[number] = [answer.data for answer in buses[number % 2].request("double", number, timeout=LONG)]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert results == {number: [number * 2] * 2 for number in range(10)}


def test_what_comes_late_is_dropped(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """Nothing is kept of a request that nobody waits for; the next one is not confused by it."""
    held: list[Message] = []
    connect().subscribe("who-has", held.append)
    assert len(bus.request("who-has", 1, timeout=0.2)) == 0
    eventually(lambda: len(held) == 1)
    held[0].reply("too late")
    held[0].reply("and again")
    assert bus.replies._questions == {}
    assert len(bus.request("who-has", 2, timeout=0.2)) == 0


def test_the_first_answer_counts(bus: Bus, connect: Connect) -> None:
    """A message that is delivered twice may be answered twice."""
    question = Question(lambda: None)
    question.add("node", zkms.Answer("node", "client", 1))
    question.add("node", zkms.Answer("node", "client", 2))
    question.add("stranger", zkms.Answer("stranger", "client", 3))
    connect().subscribe("who-has")
    receipt = bus.publish("who-has", 1)
    question.expect(receipt)
    (asked,) = receipt.pending
    question.add(asked, zkms.Answer(asked, "client", 4))
    question.add(asked, zkms.Answer(asked, "client", 5))
    assert [answer.data for answer in question.answers()] == [4]


def test_without_expecting_anybody_a_silent_node_would_go_unnoticed(
    bus: Bus, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaking it on purpose: who is missing is known from the receipt alone."""
    connect().subscribe("who-has", lambda message: None)
    monkeypatch.setattr(Question, "expect", lambda self, receipt: None)
    assert bus.request("who-has", 1, timeout=0.2).complete


def test_bad_input_has_its_own_words(bus: Bus) -> None:
    """And nothing is sent."""
    with pytest.raises(NoSubscribers):
        bus.request("who-has", 1, timeout=1.0)
    for timeout in (-1, 0, float("inf"), "soon", True):
        with pytest.raises(InvalidArgument, match="timeout"):
            bus.request("who-has", 1, timeout=timeout)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="headers"):
        bus.request("who-has", 1, headers=["no"])  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="pattern"):
        bus.request("who.*", 1)


@pytest.mark.of_threads
def test_an_answer_that_nobody_asked_for_is_refused(bus: Bus, connect: Connect) -> None:
    """is_request tells beforehand."""
    sub = connect().subscribe("users")
    bus.publish("users", 1)
    message = sub.get(timeout=LONG)
    assert message is not None
    assert not message.is_request
    with pytest.raises(InvalidArgument, match="no request"):
        message.reply(1)


@pytest.mark.of_threads
def test_a_bus_that_is_closed_tells_those_who_wait(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """They need not wait for the time to be over."""
    held: list[Message] = []
    connect().subscribe("who-has", held.append)
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            bus.request("who-has", 1, timeout=600)
        except zkms.Closed as error:
            raised.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    eventually(lambda: held)
    bus.close()
    asking.join(LONG)
    assert len(raised) == 1


Start = Callable[[str], tuple[subprocess.Popen[str], str]]


@pytest.fixture
def start(zookeeper: Server, zookeeper_root: str) -> Iterator[Start]:
    """A process that answers, or is silent, and the id of its subscription; killed afterwards."""
    processes: list[subprocess.Popen[str]] = []

    def begin(how: str) -> tuple[subprocess.Popen[str], str]:
        program = str(Path(__file__).parent / "programs" / "answering.py")
        command = [sys.executable, program, zookeeper.hosts, zookeeper_root, "who-has", how]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield begin
    for process in processes:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.of_threads
def test_processes_that_answer_are_silent_or_were_killed(bus: Bus, start: Start) -> None:
    """One answers; the silent one is named, and so is one killed with -9, as long as its session lives."""
    _, answering = start("answer")
    dead, killed = start("answer")
    both = bus.request("who-has", 0, timeout=LONG)
    assert {answer.subscription for answer in both} == {answering, killed}
    _, silent = start("silent")
    dead.kill()
    dead.wait()
    for _ in range(20):  # a machine that does much else may take longer than two seconds
        answers = bus.request("who-has", 1, timeout=2.0)
        if len(answers):
            break
    assert [(answer.subscription, answer.data["asked"]) for answer in answers] == [(answering, 1)]
    assert set(answers.missing) in ({silent, killed}, {silent})  # the latter if its session has ended meanwhile
