"""What became of all that one command has published, per subscription."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from zkms.publish.receipt import Receipt
from zkms.tree.delayed_names import WAITING


class Delivery:
    """Sums up receipts; they are kept only if they are to be waited for."""

    def __init__(self, topic: str, *, keep: bool) -> None:
        self.topic = topic
        self.messages = 0
        self.first_id = ""
        self.subscriptions: set[str] = set()
        self.due: float | None = None
        """When it is due, if it is for later."""
        self._keep = keep
        self._receipts: dict[int, Receipt] = {}

    def add(self, receipts: Sequence[Receipt]) -> None:
        """More messages were published; a receipt stands there once for each."""
        self.messages += len(receipts)
        frames = {id(receipt): receipt for receipt in receipts}
        for receipt in frames.values():
            self.first_id = self.first_id or receipt.id
            self.due = receipt.due
            self._count(receipt)
        if self._keep:
            self._receipts |= frames

    def wait(self, timeout: float) -> None:
        """Until everybody has acked everything, or `timeout` seconds."""
        deadline = time.monotonic() + timeout
        for receipt in self._receipts.values():
            receipt.wait(max(0.0, deadline - time.monotonic()))
            self._count(receipt)  # who gets what is for later is known only then

    def _count(self, receipt: Receipt) -> None:
        self.subscriptions.update(name for name in receipt.pending if name != WAITING)
        self.subscriptions.update(receipt.acked, receipt.gone)

    def states(self) -> dict[str, tuple[str, str]]:
        """By subscription: acked, pending or gone, and why."""
        states = dict.fromkeys(self.subscriptions, ("acked", ""))
        for receipt in self._receipts.values():
            states |= {name: ("gone", why) for name, why in receipt.gone.items()}
        for receipt in self._receipts.values():
            states |= dict.fromkeys(receipt.pending, ("pending", "not acked in time"))
            if receipt.delayed:
                states[WAITING] = ("pending", "not due yet")
        return states

    @property
    def complete(self) -> bool:
        """Whether everybody has acked everything."""
        return all(state == "acked" for state, _ in self.states().values())

    def as_json(self, *, waited: bool) -> dict[str, Any]:
        """For programs; who acked what is known only if it was waited for."""
        document: dict[str, Any] = {
            "topic": self.topic,
            "messages": self.messages,
            "id": self.first_id,
            "subscriptions": sorted(self.subscriptions),
        }
        if self.due is not None:
            document["due"] = self.due
        if waited:
            states = sorted(self.states().items())
            document["acked"] = [name for name, (state, _) in states if state == "acked"]
            document["pending"] = [name for name, (state, _) in states if state == "pending"]
            document["gone"] = {name: why for name, (state, why) in states if state == "gone"}
        return document
