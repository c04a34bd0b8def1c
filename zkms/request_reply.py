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
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from zkms.answers import Answer, Answers
from zkms.checks import Codec
from zkms.errors import Closed, InvalidArgument
from zkms.message.message import REQUEST
from zkms.publish.publisher import result
from zkms.tree.paths import subscription_of

if TYPE_CHECKING:
    from zkms.bus import Bus
    from zkms.message.message import Message
    from zkms.publish.receipt import Receipt

TOPIC = "zkms.replies"
ASKER = "zkms-reply-to"
"""The client that asks: of a request; and of an answer, so that only that one gets it."""
LANE = "zkms-from"
CLIENT = "zkms-client"
ERROR = "zkms-error"
LONGEST_ERROR = 500


class Question:
    """A request that somebody waits for. Answers come on the delivery thread; `settled` is called there at the end."""

    def __init__(self, settled: Callable[[], None]) -> None:
        self.id = secrets.token_hex(8)
        self.closed = False
        self._settled = settled
        self._lock = threading.Lock()
        self._came: dict[str, Answer] = {}
        """By lane: the first one counts, as a message may be delivered twice."""
        self._expected: tuple[str, ...] | None = None

    def expect(self, receipt: Receipt) -> None:
        """The request is stored: this is who got it, or should have."""
        with self._lock:
            self._expected = (*receipt.pending, *receipt.acked, *receipt.gone)
            complete = self._is_complete()
        if complete:
            self._settled()

    def add(self, lane: str, answer: Answer) -> None:
        """An answer came."""
        with self._lock:
            if self._expected is not None and lane not in self._expected:
                return
            self._came.setdefault(lane, answer)
            complete = self._is_complete()
        if complete:
            self._settled()

    def _is_complete(self) -> bool:
        return self._expected is not None and all(lane in self._came for lane in self._expected)

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
            came = [answer for lane, answer in self._came.items() if lane in expected]
            missing = [subscription_of(lane) for lane in expected if lane not in self._came]
        return Answers(came, missing)


class RequestReply:
    """Asks and answers for one bus. Thread-safe."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
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
            deadline = time.monotonic() + self._bus.config.request_timeout
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
                self._bus.subscribe(TOPIC, self._came, where={ASKER: self._bus.client_id})
                self._bus.before_close(self._end)
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
        marked = {**(headers or {}), ASKER: self._bus.client_id, REQUEST: question.id}
        publisher = self._bus.publishing
        kind, packed = publisher.prepare(topic, data, key=key, headers=marked, to_self=to_self, codec=codec)
        return publisher.send(kind, [packed], deadline)

    def _came(self, message: Message) -> None:
        headers = message.headers
        question = self._questions.get(headers.get(REQUEST, ""))
        if question is not None:
            lane = headers.get(LANE, "")
            name, client = subscription_of(lane), headers.get(CLIENT, "")
            question.add(lane, Answer(name, client, message.data, headers.get(ERROR)))

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
        headers = {ASKER: asker, REQUEST: request, LANE: _lane(message.entry.path), CLIENT: self._bus.client_id}
        if error is not None:
            headers[ERROR] = error[:LONGEST_ERROR]
        self._bus.publish(TOPIC, None if error is not None else data, headers=headers, if_nobody="drop", codec=codec)


def _lane(path: str) -> str:
    """The lane whose queue an entry is in: .../LANE/TOPIC/ENTRY."""
    return path.rsplit("/", 3)[1]
