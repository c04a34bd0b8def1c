"""Who reads which partition: being a member of a group, and following its plan.

A member is an ephemeral znode. One of them, the first by name, writes the plan: which member is to read which
partition. The plan is a wish; what counts are the ledgers. A member releases what the plan takes from it, once
its messages in flight are done with or out of time, and claims what the plan gives it, once its ledger has no owner, or
an owner that is no member any more. So a partition has one owner at every moment, whatever members believe.

Thread: `zkms-member-TOPIC`. It wakes when members or the plan change, and looks by itself now and then.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from typing import Protocol

from zkms.consume.claim import Claim, claim
from zkms.consume.dispatcher import Dispatcher
from zkms.consume.planner import Planner, read_plan
from zkms.context import Context
from zkms.errors import (
    ConnectionLost,
    InvalidArgument,
    NodeExists,
    NodeMissing,
    TransactionFailed,
    ZkmsError,
)
from zkms.names import check_name
from zkms.subscribe.live_registration import LiveRegistration
from zkms.tree.paths import queues_of
from zkms.tree.records import MemberState, Registration, encode
from zkms.zookeeper.operations import Create, Delete, Operation, SetData
from zkms.zookeeper.session import State, failed_with
from zkms.zookeeper.wire import Stat

log = logging.getLogger("zkms.consume")
LOOK = 1.0
"""Seconds after which a member looks by itself, whatever it was told."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds for which a partition is left alone that ZooKeeper does not let us write: at first, and at the most."""
TICK = 0.25
"""Seconds between two looks at what is in flight."""


class MemberConsumer(Protocol):
    """What the member needs of a consumer."""

    @property
    def dispatchers(self) -> dict[int, Dispatcher]:
        """Those that it has."""
        ...

    def begin(self, number: int, path: str, claimed: Claim) -> None:
        """A partition is its own: read it."""
        ...

    def end(self, number: int, timeout: float) -> None:
        """A partition is to be released."""
        ...

    def removed(self) -> None:
        """The subscription was given up elsewhere."""
        ...

    def release_rest(self) -> None:
        """Release what could not be released before."""
        ...

    pace: float
    """Seconds that a message takes its handler."""

    def tend(self) -> bool:
        """Fail what was in flight for too long; True if its handler is stuck."""
        ...


class GroupMember:
    """Keeps one consumer a member, and its partitions in step with the plan."""

    def __init__(
        self,
        context: Context,
        live_registration: LiveRegistration,
        topic: str,
        name: str,
        registration: Registration,
        consumer: MemberConsumer,
    ) -> None:
        self.wake = threading.Event()
        """Set when there is something to look at."""
        self._session = context.session
        self._live_registration = live_registration
        self._tree = context.tree
        self._me = context.client_id
        self._topic = topic
        self._name = name
        self._group = registration.kind == "group"
        self._planner = Planner(
            context.session, context.tree, topic, name, len(queues_of(name, registration)), self.wake.set
        )
        self._consumer = consumer
        self._generation = 0
        self._leaving: dict[int, float] = {}
        """Partitions that are to be released, and until when their messages in flight are waited for."""
        self._pauses: dict[int, tuple[float, float]] = {}
        """Partitions that we could not write: how long they are left alone, and until when."""
        self.ttr = 30.0
        """Seconds that messages in flight are waited for before a partition is released."""
        self._closed = False
        self._ends = 0.0
        """Until when what is done with may be stored, once it is closed."""
        self._stuck = False
        self._unverified = False
        self._recorded = context.trail.records
        self._found: tuple[list[str], Stat] | None = None
        """Who were members before we were; only a trail needs to know."""
        self._looked = 0.0
        self._shown = MemberState()
        self._thread = threading.Thread(target=self._run, name=f"zkms-member-{topic}", daemon=True)

    # -- membership ----------------------------------------------------------------------------------------------

    def join(self) -> None:
        """Show that we are there, by a znode of our own: what was claimed before it was made is not ours."""
        path = self._tree.member(self._name, self._topic, self._me)
        self._live_registration.add_member(path, self)
        generation = self._session.generation
        deadline = time.monotonic() + self._session.config.request_timeout
        former = -1  # which transaction made the znode that we wanted to replace, 0 for none; -1 before we did
        while True:
            stat = self._session.exists(path)
            mine = self._session.client_id
            ours = stat is not None and mine is not None and stat.ephemeralOwner == mine[0]
            if ours and stat is not None and former not in (-1, stat.czxid):
                break  # made by an attempt whose answer was lost
            former = 0 if stat is None else stat.czxid
            self._found = self._members() if self._recorded else None
            operations: list[Operation] = [Delete(path)] if stat is not None else []
            operations.append(Create(path, encode(self._state()), ephemeral=True))
            try:
                self._session.multi(operations)
                break
            except TransactionFailed as error:
                if not isinstance(error.cause, (NodeMissing, NodeExists)) or time.monotonic() >= deadline:
                    raise error.cause from error
                if failed_with(error, NodeMissing, path=path) and stat is None:
                    raise error.cause from error  # the subscription is gone
            except ConnectionLost:
                if time.monotonic() >= deadline:
                    raise
        self._generation = generation

    def leave(self) -> None:
        """Be no member any more."""
        self._live_registration.remove_member(self._tree.member(self._name, self._topic, self._me), self)

    def _state(self) -> MemberState:
        dispatchers = list(self._consumer.dispatchers.values())
        return MemberState(
            socket.gethostname(),
            os.getpid(),
            len(dispatchers),
            sum(dispatcher.in_flight for dispatcher in dispatchers),
            sum(dispatcher.handled for dispatcher in dispatchers),
            self._stuck,
            float(f"{self._consumer.pace:.2g}"),
            hands={dispatcher.partition: dispatcher.in_flight for dispatcher in dispatchers if dispatcher.in_flight},
        )

    def claim_alone(self, takeover: bool) -> str | None:
        """Claim the only partition of a durable subscription; who has it, if somebody has."""
        path = self._tree.ledger(self._name, self._topic, 0)
        deadline = time.monotonic() + self._session.config.request_timeout

        def may_take(owner: str, written: int) -> bool:
            return takeover or owner == self._me or not self._is_member(owner, written)

        claimed = claim(self._session, path, self._me, may_take, deadline)
        if isinstance(claimed, str):
            return claimed
        self._consumer.begin(0, path, self._with_end(claimed))
        return None

    def _with_end(self, claimed: Claim) -> Claim:
        """With the end of the former owner, if a trail needs to know it.

        If it was no member when we joined, and nobody has joined or left since, its end was before that.
        """
        if claimed.clean or not self._recorded:
            return claimed
        now = self._session.exists(self._tree.members(self._name, self._topic))
        if now is not None and self._found is not None:
            members, before = self._found
            if claimed.former not in members and now.cversion == before.cversion + 1:
                return claimed.after(before.pzxid)
        return claimed.after(claimed.zxid)

    def _members(self) -> tuple[list[str], Stat] | None:
        try:
            return self._session.children(self._tree.members(self._name, self._topic))
        except NodeMissing:
            return None

    def _is_member(self, client: str, since: int) -> bool:
        """Whether a client is a member, and was one already at a transaction.

        One that has closed its subscription while ZooKeeper did not answer, or was killed, and is back under the same
        name, does not know of what it has not released.
        """
        try:
            check_name("client", client)
        except InvalidArgument:
            return False  # no znode can have that name: the ledger was overwritten
        stat = self._session.exists(self._tree.member(self._name, self._topic, client))
        return stat is not None and stat.czxid < since

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Look after it from now on."""
        self._thread.start()
        self.wake.set()

    def reconnected(self) -> None:
        """On the connection's thread: what we own may have been taken from us."""
        self._unverified = True
        self.wake.set()

    def close(self, timeout: float) -> None:
        """Release all partitions and leave the group, within `timeout` seconds or else when ZooKeeper answers."""
        self._ends = time.monotonic() + timeout
        self._closed = True
        self.wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _depart(self) -> None:
        try:
            for number in list(self._consumer.dispatchers):
                self._consumer.end(number, max(0.0, self._ends - time.monotonic()))
        except ZkmsError as error:
            log.warning("%s of %r could not be released: %s", self._name, self._topic, error)
        self.leave()

    def _run(self) -> None:
        while True:
            self.wake.wait(TICK)
            woken = self.wake.is_set()
            self.wake.clear()
            if self._closed:
                self._depart()
                return
            try:
                self._tend()
                if self._session.state is State.CONNECTED and (woken or time.monotonic() - self._looked >= LOOK):
                    self._looked = time.monotonic()
                    self._look()
            except ZkmsError as error:
                if isinstance(error, NodeMissing) and self._is_removed():
                    self._consumer.removed()
                    self.leave()
                    return
                if not self._closed:
                    log.warning("%s of %r: %s; looking again", self._name, self._topic, error)
            except Exception:
                log.exception("looking after %s of %r failed", self._name, self._topic)

    def _is_removed(self) -> bool:
        """Whether the subscription was given up by another process."""
        try:
            return self._session.exists(self._tree.registration(self._topic, self._name)) is None
        except ZkmsError:
            return False

    def _tend(self) -> None:
        stuck = self._consumer.tend()
        if stuck != self._stuck:
            self._stuck = stuck
            log.warning("%s: the handler of %r %s", self._name, self._topic, "is stuck" if stuck else "goes on")
            self._looked = 0.0

    def _look(self) -> None:
        if self._session.generation != self._generation and not self._closed:
            self.join()
            for dispatcher in list(self._consumer.dispatchers.values()):
                dispatcher.ownership.renew()
        if self._unverified or not self._group:  # a durable one may be taken over while nothing is there to be acked
            self._unverified = False
            for dispatcher in list(self._consumer.dispatchers.values()):
                dispatcher.ownership.verify()
        for number, dispatcher in list(self._consumer.dispatchers.items()):
            if dispatcher.lost is not None:
                self._leaving.pop(number, None)
                self._consumer.end(number, 0.0)
                if dispatcher.ownership.refused:
                    self._pause(number)
        self._consumer.release_rest()
        if self._group:
            self._follow_plan()
        elif not self._consumer.dispatchers and not self._is_paused(0):
            self._claim_again()
        elif self._is_removed():
            raise NodeMissing("the subscription was removed", path=self._tree.registration(self._topic, self._name))
        self._show()

    def _claim_again(self) -> None:
        """A durable subscription that was taken from us is ours again when nobody has it."""
        owner = self.claim_alone(takeover=False)
        if owner is not None:
            log.debug("%s of %r is read by %s", self._name, self._topic, owner)

    def _pause(self, number: int) -> None:
        """Claimed again at once, it would be lost again at once; each time in a row it is left alone for longer."""
        now = time.monotonic()
        last, until = self._pauses.get(number, (0.0, 0.0))
        pause = min(2 * last, LONGEST_PAUSE) if now < until + LONGEST_PAUSE and last else FIRST_PAUSE
        self._pauses[number] = pause, now + pause
        log.warning("partition %d of %s is left alone for %g s", number, self._name, pause)

    def _is_paused(self, number: int) -> bool:
        return number in self._pauses and time.monotonic() < self._pauses[number][1]

    def _show(self) -> None:
        state = self._state()
        if state != self._shown:
            path = self._tree.member(self._name, self._topic, self._me)
            try:
                self._session.multi([SetData(path, encode(state))])
                self._shown = state
            except TransactionFailed as error:
                if not failed_with(error, NodeMissing):
                    raise error.cause from error
                self._generation = 0  # join again

    # -- the plan ------------------------------------------------------------------------------------------------

    def _follow_plan(self) -> None:
        members, _ = self._session.children(self._tree.members(self._name, self._topic), self.wake.set)
        data, stat = self._session.get(self._tree.group(self._name, self._topic), self.wake.set)
        plan = read_plan(data)
        if members and min(members) == self._me:
            plan = self._planner.improve(plan, members, stat.version)
        mine = {number for number, member in plan.lanes.items() if member == self._me} if not self._stuck else set()
        self._release(mine)
        for number in sorted(mine - self._consumer.dispatchers.keys()):
            if not self._closed and not self._is_paused(number):
                self._claim(number)

    def _release(self, mine: set[int]) -> None:
        """Release what is not `mine` by the plan, once nothing of it is in flight, or its time to run is over."""
        now = time.monotonic()
        for number, dispatcher in list(self._consumer.dispatchers.items()):
            if number in mine and number not in self._leaving:
                continue
            until = self._leaving.setdefault(number, now + self.ttr)
            if dispatcher.stop() or now >= until or self._stuck:
                del self._leaving[number]
                self._consumer.end(number, 5.0)
            else:
                self._looked = 0.0

    def _claim(self, number: int) -> None:
        path = self._tree.ledger(self._name, self._topic, number)
        deadline = time.monotonic() + self._session.config.request_timeout

        def may_take(owner: str, written: int) -> bool:
            return owner == self._me or not self._is_member(owner, written)  # asked now: it may have joined since

        self._session.exists(path, self.wake.set)
        claimed = claim(self._session, path, self._me, may_take, deadline)
        if isinstance(claimed, str):
            log.debug("partition %d of %s is still read by %s", number, self._name, claimed)
        else:
            self._consumer.begin(number, path, self._with_end(claimed))
