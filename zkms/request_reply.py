"""Request and reply: bus.request() publishes a request and gathers the answers, message.reply() sends one.

A request is a normal message with two headers: its id, and the client that asks. All answers go to one topic. At its
first request a client subscribes there, live, for answers to its own name. The receipt says who is expected to answer:
every subscription that got the request. Answers that come too late are dropped.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, overload

import msgspec

from zkms.checks import Codec
from zkms.context import Context
from zkms.errors import Closed, InvalidArgument
from zkms.message.message import REQUEST, Message
from zkms.publish.publisher import Publisher, result
from zkms.publish.receipt import Receipt
from zkms.subscribe.options import SubscribeOptions
from zkms.tree.paths import subscription_of

TOPIC = "zkms.replies"
ASKER = "zkms-reply-to"
"""The client that asks; an answer has it too, so that only this client gets it."""
QUEUE = "zkms-from"
CLIENT = "zkms-client"
ERROR = "zkms-error"
LONGEST_ERROR = 500


class Answer(msgspec.Struct, frozen=True):
    """One subscription's answer."""

    subscription: str
    """Who was asked: a live subscription's id, the name of a durable one, or the group."""
    client: str
    """The client that answered."""
    data: Any
    """The answer; None if it is an error."""
    error: str | None = None
    """The error, if there was one."""


class Answers(Sequence[Answer]):
    """Answers in the order of arrival; `missing` are the subscriptions that did not answer in time."""

    def __init__(self, answers: Iterable[Answer], missing: Iterable[str]) -> None:
        self._answers = tuple(answers)
        self.missing = tuple(missing)
        """Subscriptions that did not answer: too slow, dead, or with a full queue."""

    @property
    def complete(self) -> bool:
        """Whether every subscription has answered."""
        return not self.missing

    def __len__(self) -> int:
        return len(self._answers)

    @overload
    def __getitem__(self, index: int) -> Answer: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Answer, ...]: ...

    def __getitem__(self, index: int | slice) -> Answer | tuple[Answer, ...]:
        return self._answers[index]

    def __repr__(self) -> str:
        return f"<Answers: {len(self._answers)} came, {len(self.missing)} missing>"


class Question:
    """A request that a caller waits for. Answers come on the delivery thread, which calls `settled` at the end."""

    def __init__(self, settled: Callable[[], None]) -> None:
        self.id = secrets.token_hex(8)
        self.closed = False
        self._settled = settled
        self._lock = threading.Lock()
        self._came: dict[str, Answer] = {}
        """By queue; the first answer counts, because a message may be delivered twice."""
        self._expected: tuple[str, ...] | None = None

    def expect(self, receipt: Receipt) -> None:
        """Expect answers from the receipt's subscriptions, now that the request is stored."""
        with self._lock:
            self._expected = (*receipt.pending, *receipt.acked, *receipt.gone)
            complete = self._is_complete()
        if complete:
            self._settled()

    def add(self, queue: str, answer: Answer) -> None:
        """Add an answer."""
        with self._lock:
            if self._expected is not None and queue not in self._expected:
                return
            self._came.setdefault(queue, answer)
            complete = self._is_complete()
        if complete:
            self._settled()

    def _is_complete(self) -> bool:
        return self._expected is not None and all(queue in self._came for queue in self._expected)

    def close(self) -> None:
        """End it, because the bus is closed."""
        self.closed = True
        self._settled()

    def answers(self) -> Answers:
        """Return the answers of the expected subscriptions."""
        if self.closed:
            raise Closed("the bus was closed before the answers came")
        with self._lock:
            expected = self._expected or ()
            came = [answer for queue, answer in self._came.items() if queue in expected]
            missing = [subscription_of(queue) for queue in expected if queue not in self._came]
        return Answers(came, missing)


class RequestReply:
    """Sends requests and replies for one bus. Thread-safe."""

    def __init__(self, context: Context, subscribe: Callable[[SubscribeOptions], object], publisher: Publisher) -> None:
        self._context = context
        self._subscribe = subscribe
        self._publisher = publisher
        self._lock = threading.Lock()
        self._listening = False
        self._questions: dict[str, Question] = {}
        self.submit: Callable[..., Future[Any]] | None = None
        """Runs blocking calls for zkms.aio."""

    # -- asking --------------------------------------------------------------------------------------------------

    def ask(
        self,
        topic: str,
        data: Any,
        timeout: float,
        *,
        key: str | None,
        headers: Mapping[str, str] | None,
        to_self: bool,
        codec: Codec | None,
    ) -> Answers:
        """Publish a request, and wait until all have answered, at most `timeout` seconds."""
        done = threading.Event()
        self.listen()
        question = self.open(done.set)
        try:
            deadline = time.monotonic() + self._context.config.request_timeout
            sent = self.send(question, topic, data, deadline, key=key, headers=headers, to_self=to_self, codec=codec)
            question.expect(result(sent, deadline))
            done.wait(timeout)
            return question.answers()
        finally:
            self.close(question)

    def listen(self) -> None:
        """Subscribe to answers at the first request; no answer is missed after this returns."""
        with self._lock:
            if not self._listening:
                where = {ASKER: self._context.client_id}
                self._subscribe(SubscribeOptions(topic=TOPIC, handler=self._came, where=where))
                self._context.lifetime.before_close(self._end)
                self._listening = True

    def open(self, settled: Callable[[], None]) -> Question:
        """Return a new question, which collects answers."""
        question = Question(settled)
        self._questions[question.id] = question
        return question

    def close(self, question: Question) -> None:
        """Drop further answers to a question."""
        self._questions.pop(question.id, None)

    def send(
        self,
        question: Question,
        topic: str,
        data: Any,
        deadline: float,
        *,
        key: str | None,
        headers: Mapping[str, str] | None,
        to_self: bool,
        codec: Codec | None,
    ) -> Future[Receipt]:
        """Publish the request in a frame of its own, so that its receipt names exactly its subscriptions."""
        if headers is not None and not isinstance(headers, Mapping):
            raise InvalidArgument(f"headers: give a mapping of str to str, not {headers!r:.60}")
        marked = {**(headers or {}), ASKER: self._context.client_id, REQUEST: question.id}
        kind, packed = self._publisher.prepare(topic, data, key=key, headers=marked, to_self=to_self, codec=codec)
        return self._publisher.send(kind, [packed], deadline)

    def _came(self, message: Message) -> None:
        headers = message.headers
        question = self._questions.get(headers.get(REQUEST, ""))
        if question is not None:
            queue = headers.get(QUEUE, "")
            name, client = subscription_of(queue), headers.get(CLIENT, "")
            question.add(queue, Answer(name, client, message.data, headers.get(ERROR)))

    def _end(self, _seconds: float) -> None:
        for question in list(self._questions.values()):
            question.close()

    # -- answering -----------------------------------------------------------------------------------------------

    def reply(self, message: Message, data: Any, error: str | None, codec: Codec | None) -> None:
        """Answer a request; the answer is dropped if the client that asked is gone."""
        asker, request = message.headers.get(ASKER), message.headers.get(REQUEST)
        if asker is None or request is None:
            raise InvalidArgument(f"{message!r} is no request, so nobody waits for an answer: see message.is_request")
        if error is not None and (not isinstance(error, str) or not error):
            raise InvalidArgument(f"reply: give the error as a str, not {error!r:.60}")
        headers = {ASKER: asker, REQUEST: request, QUEUE: _queue(message.entry.path), CLIENT: self._context.client_id}
        if error is not None:
            headers[ERROR] = error[:LONGEST_ERROR]
        answer = None if error is not None else data
        self._publisher.publish(TOPIC, answer, headers=headers, if_nobody="drop", codec=codec)


def _queue(path: str) -> str:
    """Return the name of an entry's queue: .../NAME/TOPIC/ENTRY."""
    return path.rsplit("/", 3)[1]
