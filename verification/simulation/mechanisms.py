"""The mechanisms behind the promises, and how to disable each: its workload must then find a broken promise.

Most mechanisms are conditions or parts of a transaction. They are disabled at the server, which executes the
transaction without them.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

import zkms
from verification.simulation.ensemble import Edit, Ensemble
from zkms.zookeeper.operations import Check, Create, Delete, Operation, SetData


@dataclass(frozen=True)
class Mechanism:
    """A mechanism, its workload, and how to disable it."""

    name: str
    workload: str
    what: str
    edit: Edit | None = None
    patch: Callable[[], Callable[[], None]] | None = None
    """Disables it in the code; returns a function that restores it."""


# -- at the server -----------------------------------------------------------------------------------------------------


def _unconditional(part: str) -> Edit:
    """Ignore conditions on znodes whose path contains this."""

    def edit(_ensemble: Ensemble, operations: Sequence[Operation], _session: int) -> list[Operation]:
        kept: list[Operation] = []
        for operation in operations:
            if part in operation.path and isinstance(operation, Check):
                continue
            if part in operation.path and isinstance(operation, SetData):
                operation = msgspec.structs.replace(operation, version=-1)
            kept.append(operation)
        return kept

    return edit


def _entries(operations: Sequence[Operation]) -> list[Operation]:
    """Return the operations that create entries of queues."""
    return [each for each in operations if isinstance(each, Create) and each.sequence and "/messages/" in each.path]


def _partly(ensemble: Ensemble, operations: Sequence[Operation], session: int) -> list[Operation]:
    """Leave out one of several queues, if the reply is lost."""
    entries = _entries(operations)
    connection = ensemble.sessions[session].connection
    unheard = connection is None or not connection.open or connection.armed == "after"
    return [each for each in operations if not (unheard and len(entries) > 1 and each is entries[-1])]


def _published_only(_ensemble: Ensemble, operations: Sequence[Operation], _session: int) -> list[Operation]:
    """Leave out the acks of a transaction that also publishes."""
    entries = _entries(operations)
    first = next((place for place, each in enumerate(operations) if "/lanes/" in each.path), None)
    return [*operations[:first]] if entries else [*operations]


def _unannounced(_ensemble: Ensemble, operations: Sequence[Operation], _session: int) -> list[Operation]:
    """Leave out the gap entry when the full flag is set."""
    flagged = any(isinstance(each, Create) and each.path.endswith("!") for each in operations)
    return [each for each in operations if not (flagged and each in _entries(operations))]


def _dropped_silently(_ensemble: Ensemble, operations: Sequence[Operation], _session: int) -> list[Operation]:
    """Leave out the gap entry when entries are dropped to make room."""
    dropped = any(isinstance(each, Delete) and "/messages/" in each.path for each in operations)
    return [each for each in operations if not (dropped and each in _entries(operations))]


def _unburied(_ensemble: Ensemble, operations: Sequence[Operation], _session: int) -> list[Operation]:
    """Mark a failed message as done, without a dead letter."""
    return [each for each in operations if not (isinstance(each, Create) and each.sequence and "/dead/" in each.path)]


def _copied(_ensemble: Ensemble, operations: Sequence[Operation], _session: int) -> list[Operation]:
    """Keep a dead letter that is requeued."""
    return [each for each in operations if not (_entries(operations) and "/dead/" in each.path)]


def _registered(_ensemble: Ensemble, operations: Sequence[Operation], _session: int) -> list[Operation]:
    """Keep the registration when a subscription is removed, so that publishers still write to it."""
    return [each for each in operations if not (isinstance(each, Delete) and "/subscribers/" in each.path)]


# -- in the code -------------------------------------------------------------------------------------------------------


def _changed(owner: str, name: str, change: Callable[[Any], object]) -> Callable[[], Callable[[], None]]:
    """Replace an attribute of a class or module by the result of `change`."""

    def patch() -> Callable[[], None]:
        module, _, kind = owner.rpartition(".")
        holder = getattr(importlib.import_module(module), kind)
        before = getattr(holder, name)
        setattr(holder, name, change(before))
        return lambda: setattr(holder, name, before)

    return patch


def _attribute(owner: str, name: str, value: object) -> Callable[[], Callable[[], None]]:
    return _changed(owner, name, lambda _before: value)


def _backwards(recover: Callable[[Any], None]) -> Callable[[Any], None]:
    """Recover in the reverse order of sending."""

    def wrong(publisher: Any) -> None:
        with publisher._state:
            publisher._state.wait_for(lambda: all(shipment.settled for shipment in publisher._outstanding))
            publisher._outstanding = deque(reversed(publisher._outstanding))
        recover(publisher)

    return wrong


def _at_once(wait: Callable[..., None]) -> Callable[..., None]:
    """Make a message that waits for another attempt due at once."""
    return lambda dispatcher, scope, message, _due: wait(dispatcher, scope, message, 0.0)


def _refused_late(ship: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Store a publish that a full queue has rejected."""

    def wrong(publisher: Any, shipment: Any) -> None:
        try:
            ship(publisher, shipment)
        except zkms.QueueFull:
            publisher._limits.admit = lambda *_args: True
            ship(publisher, shipment)
            del publisher._limits.admit
            raise

    return wrong


MECHANISMS = {
    each.name: each
    for each in (
        Mechanism("epoch", "live", "a publish checks the members it knows", _unconditional("/subscribers")),
        Mechanism("sequence", "live", "the producer's number is written with a publish", _unconditional("/producers/")),
        Mechanism("fan-out", "live", "a publish is one transaction, also one whose reply is lost", _partly),
        Mechanism(
            "resend",
            "live",
            "what has to be sent again is sent in order",
            patch=_changed("zkms.publish.pipeline.Pipeline", "_recover", _backwards),
        ),
        Mechanism(
            "names",
            "live",
            "names in queues are looked at before a body is freed",
            patch=_attribute("zkms.publish.bodies", "names_in", lambda *_args: set()),
        ),
        Mechanism(
            "gap",
            "live",
            "a subscription with a new session says that it may have missed something",
            patch=_attribute(
                "zkms.deliver.live.Subscription", "_reach_gap", lambda self, path, _record: self._acks.add(path)
            ),
        ),
        Mechanism(
            "fence", "durable", "an ack writes the ledger at the version that is known", _unconditional("/lanes/")
        ),
        Mechanism(
            "parts",
            "durable",
            "the ledger says which messages of a frame are done with",
            patch=_attribute("zkms.consume.entry_state", "mask_of", lambda *_args: 0),
        ),
        Mechanism(
            "scopes",
            "durable",
            "while a message waits for another attempt, nothing behind it is delivered",
            patch=_attribute("zkms.consume.dispatcher.Dispatcher", "_scope", lambda *_args: None),
        ),
        Mechanism("members", "group", "the fence, for the members of a group", _unconditional("/lanes/")),
        Mechanism(
            "resigning",
            "group",
            "who leaves while ZooKeeper does not answer is no member any more when it does",
            patch=_attribute("zkms.subscribe.live_registration.LiveRegistration", "_take_away", lambda *_args: None),
        ),
        Mechanism(
            "joining",
            "group",
            "a claim is its member's, and not that of the next one with its name",
            patch=_changed(
                "zkms.consume.group_member.GroupMember",
                "_is_member",
                lambda known: lambda member, owner, _since: known(member, owner, 2**63),
            ),
        ),
        Mechanism(
            "keys",
            "group",
            "the scopes, for the messages of a key",
            patch=_attribute("zkms.consume.dispatcher.Dispatcher", "_scope", lambda *_args: None),
        ),
        Mechanism(
            "room",
            "limits",
            "a publisher looks at a queue before it could overfill it",
            patch=_attribute("zkms.publish.limits.Limits", "admit", lambda *_args: True),
        ),
        Mechanism(
            "refusal",
            "limits",
            "it looks before anything is sent",
            patch=_changed("zkms.publish.pipeline.Pipeline", "ship", _refused_late),
        ),
        Mechanism("overflow", "limits", "where a queue was full, there is a gap in it", _unannounced),
        Mechanism("together", "transaction", "acks and messages are one transaction", _published_only),
        Mechanism(
            "guard",
            "cache",
            "a value that was invalidated while it was loaded is not kept",
            patch=_attribute("zkms.cache.tickets.Tickets", "valid", lambda *_args: True),
        ),
        Mechanism("burial", "letters", "what failed too often is done with and a letter in one transaction", _unburied),
        Mechanism("requeue", "letters", "a letter goes back and is gone in one transaction", _copied),
        Mechanism(
            "backoff",
            "letters",
            "what failed is not delivered again before its time",
            patch=_changed("zkms.consume.dispatcher.Dispatcher", "_wait", _at_once),
        ),
        Mechanism("oldest", "dropping", "where the oldest were dropped, there is a gap behind them", _dropped_silently),
        Mechanism("giving-up", "dropping", "what is given up is not registered any more", _registered),
    )
}


def without(name: str, ensemble: Ensemble) -> Callable[[], None]:
    """Disable a mechanism in a world; call the returned function when the world has ended."""
    mechanism = MECHANISMS[name]
    ensemble.edit = mechanism.edit
    return mechanism.patch() if mechanism.patch is not None else lambda: None
