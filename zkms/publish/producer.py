"""A producer's znode: the number of its last stored message, and the fence that makes the past certain."""

from __future__ import annotations

import logging
import secrets

from zkms.errors import BadVersion, NodeExists, NodeMissing, ProducerFenced, TransactionFailed
from zkms.publish.bodies import Bodies
from zkms.tree.paths import Tree
from zkms.tree.records import ProducerState, encode, read_record
from zkms.zookeeper.operations import Create, Delete, SetData
from zkms.zookeeper.session import Session, failed_with

log = logging.getLogger("zkms.publisher")
WINDOW = 64
"""Transactions in flight at the most: back-pressure past that."""


class Producer:
    """Numbers messages; used under the publisher's lock only."""

    def __init__(self, session: Session, tree: Tree, name: str, client_id: str) -> None:
        self.name = name
        self.seq = 0
        """Number of the last message that was given one."""
        self.bodies = Bodies(session, tree, name)
        self._session = session
        self._path = tree.producer(name)
        self._client_id = client_id
        self._claim = secrets.token_hex(4)
        self._version = 0
        self._claimed = False
        self._removed = False
        """Whether the node was found missing since the last fence that held."""

    def advance(self, last: int) -> SetData:
        """The operation that stores `last` as the newest number, if everything sent before was stored."""
        operation = SetData(self._path, self._state(last), self._version)
        self._version += 1
        return operation

    def fence(self) -> int | None:
        """Make sure that nothing sent so far can still be carried out, and return the last number stored.

        The node's version is moved past all those that transactions in flight expect, ours or those of the process that
        had this name before us: a server may still read some from a connection that we have given up.
        None: the node had been removed, so what became of the messages in flight cannot be known.
        """
        if not self._claimed:
            self.bodies.claim()
        while True:
            try:
                data, stat = self._session.get(self._path)
            except NodeMissing:
                self._removed = self._claimed
                try:
                    mine = self._state(self.seq)
                    self._session.multi([Create(self._path, mine), *self._bumps(mine, 0)])
                except TransactionFailed as error:
                    if failed_with(error, NodeExists):
                        continue
                    raise error.cause from error
                self._version, self._claimed = WINDOW, True
                return self._stored(0)
            state = read_record(data, ProducerState, self._path)
            if self._claimed and (state.owner, state.claim) != (self._client_id, self._claim):
                raise ProducerFenced(self.name, state.owner)
            mine = self._state(state.seq)
            try:
                self._session.multi(self._bumps(mine, stat.version))
            except TransactionFailed as error:
                if failed_with(error, BadVersion) or failed_with(error, NodeMissing):
                    continue
                raise error.cause from error
            self._version, self._claimed = stat.version + WINDOW, True
            self.seq = max(self.seq, state.seq)
            return self._stored(state.seq)

    def release(self) -> None:
        """At the end, with nothing in flight: free what nobody needs, and remove the nodes unless they are named.

        Where somebody still has to read a body, everything stays, and the cleaner takes it when that is over.
        """
        if not self._claimed:
            return
        self.bodies.sweep()
        if self.name != self._client_id or self.bodies.kept:
            return
        try:
            self._session.multi([Delete(self._path, self._version), Delete(self.bodies.path)])
        except TransactionFailed as error:
            log.info("the producer's nodes are left to the cleaner: %s", error)

    def _state(self, seq: int) -> bytes:
        return encode(ProducerState(self._client_id, seq, self._claim))

    def _bumps(self, data: bytes, version: int) -> list[SetData]:
        return [SetData(self._path, data, version + step) for step in range(WINDOW)]

    def _stored(self, seq: int) -> int | None:
        removed, self._removed = self._removed, False
        return None if removed else seq
