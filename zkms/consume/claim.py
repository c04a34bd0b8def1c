"""Becomes the owner of a partition: after a claim, a write of its ledger, the former owner's acks are refused."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

from zkms.errors import BadVersion, ConnectionLost, TransactionFailed
from zkms.tree.records import Ledger, encode, read_record
from zkms.zookeeper.operations import SetData
from zkms.zookeeper.session import Session, failed_with


class Claim(NamedTuple):
    """A ledger that is ours, whether its last owner had released it, and the transaction that made it ours."""

    ledger: Ledger
    version: int
    clean: bool
    zxid: int
    former: str = ""
    """The owner that had not released it."""
    ended: int = 0
    """The transaction after which that one cannot have read anything; 0 if nobody has looked."""

    def after(self, ended: int) -> Claim:
        """The same, with the transaction after which the former owner cannot have read anything."""
        return self._replace(ended=ended)


def claim(session: Session, path: str, me: str, may_take: Callable[[str, int], bool], deadline: float) -> Claim | str:
    """Become the owner of a partition; or who has it, if `may_take` says that it must not be taken from that one.

    It is asked with the owner's name and the transaction in which that one has written the ledger last.
    From then on nothing that the former owner sends is carried out.
    """
    token, former = secrets.token_hex(4), ""
    while True:
        data, stat = session.get(path, deadline=deadline)
        found = read_record(data, Ledger, path)
        if found.claim == token:
            return Claim(found, stat.version, not former, stat.mzxid, former)  # an attempt whose answer was lost
        if found.owner and not may_take(found.owner, stat.mzxid):
            return found.owner
        former = found.owner
        mine = Ledger(me, token, found.epoch + 1, found.parts, found.handed, found.doubtful)
        try:
            written = session.multi([SetData(path, encode(mine), stat.version)], deadline=deadline)
        except TransactionFailed as error:
            if not failed_with(error, BadVersion):
                raise error.cause from error
            if time.monotonic() >= deadline:
                raise
        except ConnectionLost:
            if time.monotonic() >= deadline:
                raise
        else:
            return Claim(mine, stat.version + 1, not former, written[0].mzxid, former)
