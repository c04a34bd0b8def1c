"""Questions and answers: bus.request() publishes a message that says where answers go, message.reply() sends one there.

A request is a message like any other, with two headers: its id, and the client that asks. Answers go to one topic, to
which every client that asks has a live subscription for those with its own name, made at its first request. Who is
expected to answer is known from the receipt: every subscription that got the request. What comes when nobody waits for
it any more is dropped.
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
from zkms.message.frame import Packed
from zkms.message.message import REQUEST, Message
from zkms.publish.many import result
from zkms.publish.receipt import Receipt
from zkms.subscribe.options import SubscribeOptions
from zkms.tree.paths import subscription_of

TOPIC = "zkms.replies"
ASKER = "zkms-reply-to"
"""The client that asks: of a request; and of an answer, so that only that one gets it."""
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
    """What it answered; None if that is an error."""
    error: str | None = None
    """What went wrong there, if anything did."""


class Answers(Sequence[Answer]):
    """Answers in the order in which they came. `missing` did not answer in time; `complete` says that nobody is."""

    def __init__(self, answers: Iterable[Answer], missing: Iterable[str]) -> None:
        self._answers = tuple(answers)
        self.missing = tuple(missing)
        """Subscriptions that were asked and did not answer: too slow, dead, or without room in their queue."""

    @property
    def complete(self) -> bool:
        """Whether everybody who was asked has answered."""
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
    """A request that somebody waits for. Answers come on the delivery thread; `settled` is called there at the end."""

    def __init__(self, settled: Callable[[], None]) -> None:
        self.id = secrets.token_hex(8)
        self.closed = False
        self._settled = settled
        self._lock = threading.Lock()
        self._came: dict[str, Answer] = {}
        """By the queue that was asked: the first one counts, as a message may be delivered twice."""
        self._expected: tuple[str, ...] | None = None

    def expect(self, receipt: Receipt) -> None:
        """The request is stored: this is who got it, or should have."""
        with self._lock:
            self._expected = (*receipt.pending, *receipt.acked, *receipt.gone)
            complete = self._is_complete()
        if complete:
            self._settled()

    def add(self, queue: str, answer: Answer) -> None:
        """An answer came."""
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
        """The bus is closed: nothing will come."""
        self.closed = True
        self._settled()

    def answers(self) -> Answers:
        """What came, of whom it was expected."""
        if self.closed:
            raise Closed("the bus was closed before the answers came")
        with self._lock:
            expected = self._expected or ()
            came = [answer for queue, answer in self._came.items() if queue in expected]
            missing = [subscription_of(queue) for queue in expected if queue not in self._came]
        return Answers(came, missing)


class RequestReply:
    """Asks and answers for one bus. Thread-safe."""

    def __init__(
        self,
        context: Context,
        subscribe: Callable[[SubscribeOptions], object],
        *,
        packed: Callable[..., Packed],
        send: Callable[..., Future[Receipt]],
        publish: Callable[..., Receipt],
    ) -> None:
        self._context = context
        self._subscribe = subscribe
        self._packed = packed
        self._send = send
        self._publish = publish
        self._lock = threading.Lock()
        self._listening = False
        self._questions: dict[str, Question] = {}
        self.submit: Callable[..., Future[Any]] | None = None
        """How zkms.aio runs what waits."""

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
        """Publish a request, and wait until all have answered, or for so many seconds."""
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
        """Subscribe to answers, at the first request; when this returns, none is missed."""
        with self._lock:
            if not self._listening:
                where = {ASKER: self._context.client_id}
                self._subscribe(SubscribeOptions(topic=TOPIC, handler=self._came, where=where))
                self._context.lifetime.before_close(self._end)
                self._listening = True

    def open(self, settled: Callable[[], None]) -> Question:
        """Begin to wait for answers."""
        question = Question(settled)
        self._questions[question.id] = question
        return question

    def close(self, question: Question) -> None:
        """Nobody waits for its answers any more."""
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
        """Publish the request alone: messages that travel together have one receipt, and this one's says who got it."""
        if headers is not None and not isinstance(headers, Mapping):
            raise InvalidArgument(f"headers: give a mapping of str to str, not {headers!r:.60}")
        marked = {**(headers or {}), ASKER: self._context.client_id, REQUEST: question.id}
        packed = self._packed(topic, data, key, marked, None, codec)
        return self._send(topic, [packed], to_self, "raise", deadline)

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
        """Answer a request; if who asked is gone, that is fine."""
        asker, request = message.headers.get(ASKER), message.headers.get(REQUEST)
        if asker is None or request is None:
            raise InvalidArgument(f"{message!r} is no request, so nobody waits for an answer: see message.is_request")
        if error is not None and (not isinstance(error, str) or not error):
            raise InvalidArgument(f"reply: give the error as a str, not {error!r:.60}")
        headers = {ASKER: asker, REQUEST: request, QUEUE: _queue(message.entry.path), CLIENT: self._context.client_id}
        if error is not None:
            headers[ERROR] = error[:LONGEST_ERROR]
        self._publish(TOPIC, None if error is not None else data, headers=headers, if_nobody="drop", codec=codec)


def _queue(path: str) -> str:
    """The name of the queue that an entry is in: .../NAME/TOPIC/ENTRY."""
    return path.rsplit("/", 3)[1]
