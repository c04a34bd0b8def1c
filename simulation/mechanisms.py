"""What the promises rest on, and how to take it away: each must be missed by the workload that it is for.

Most mechanisms are conditions of a transaction. Those are taken away at the server: it carries the transaction out as
if the condition were not there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from simulation.ensemble import Ensemble
from zkms.operations import Check, Operation, SetData

Edit = Callable[[Ensemble, Sequence[Operation]], list[Operation]]


@dataclass(frozen=True)
class Mechanism:
    """One of them."""

    name: str
    workload: str
    what: str
    edit: Edit | None = None
    patch: Callable[[], Callable[[], None]] | None = None
    """Takes it away in the code; what it returns puts it back."""


def _unconditional(part: str) -> Edit:
    """Conditions on znodes whose path contains this are not looked at."""

    def edit(_ensemble: Ensemble, operations: Sequence[Operation]) -> list[Operation]:
        kept: list[Operation] = []
        for operation in operations:
            if part in operation.path and isinstance(operation, Check):
                continue
            if part in operation.path and isinstance(operation, SetData):
                operation = msgspec.structs.replace(operation, version=-1)
            kept.append(operation)
        return kept

    return edit


def _attribute(owner: str, name: str, value: object) -> Callable[[], Callable[[], None]]:
    def patch() -> Callable[[], None]:
        import importlib

        module, _, kind = owner.rpartition(".")
        holder = getattr(importlib.import_module(module), kind)
        before = getattr(holder, name)
        setattr(holder, name, value)
        return lambda: setattr(holder, name, before)

    return patch


MECHANISMS = {
    each.name: each
    for each in (
        Mechanism("epoch", "live", "a publish checks the members it knows", _unconditional("/subscribers")),
        Mechanism("sequence", "live", "the producer's number is written with a publish", _unconditional("/producers/")),
        Mechanism(
            "gap",
            "live",
            "a subscription with a new session says that it may have missed something",
            patch=_attribute(
                "zkms.subscription.Subscription", "_reach_gap", lambda self, path, _record: self._bus.acks.add(path)
            ),
        ),
        Mechanism(
            "fence", "durable", "an ack writes the ledger at the version that is known", _unconditional("/lanes/")
        ),
        Mechanism("members", "group", "the same, for the members of a group", _unconditional("/lanes/")),
        Mechanism(
            "guard",
            "cache",
            "a value that was invalidated while it was loaded is not kept",
            patch=_attribute("zkms.cache.tickets.Tickets", "valid", lambda *_args: True),
        ),
    )
}


def without(name: str, ensemble: Ensemble) -> Callable[[], None]:
    """Take a mechanism away from a world; call what this returns when the world has ended."""
    mechanism = MECHANISMS[name]
    ensemble.edit = mechanism.edit
    return mechanism.patch() if mechanism.patch is not None else lambda: None
