"""A producer's znode: it stores the number of its last message, and fences off transactions sent earlier."""

from __future__ import annotations

import logging
import secrets

from zkms.errors import BadVersion, NodeExists, NodeMissing, ProducerFenced, TransactionFailed
from zkms.publish.bodies import Bodies
from zkms.tree.paths import Tree
from zkms.tree.records import ProducerState, encode, read_record
from zkms.zookeeper.operations import Create, Delete, SetData
from zkms.zookeeper.session import Session, failed_with

log = logging.getLogger("zkms.publish")
WINDOW = 64
"""The most transactions in flight: further publishes wait."""


class Producer:
    """Numbers the messages of one producer. Not thread-safe: the pipeline calls it under its lock."""

    def __init__(self, session: Session, tree: Tree, name: str, client_id: str) -> None:
        self.name = name
        self.seq = 0
        """Number of the last message, stored or not."""
        self.bodies = Bodies(session, tree, name)
        self._session = session
        self._path = tree.producer(name)
        self._client_id = client_id
        self._claim = secrets.token_hex(4)
        self._version = 0
        self._claimed = False
        self._removed = False
        """Whether the node was found missing since the last successful fence."""

    def advance(self, last: int) -> SetData:
        """Return the operation that stores `last` as the newest number; it fails unless everything before is stored."""
        operation = SetData(self._path, self._state(last), self._version)
        self._version += 1
        return operation

    def fence(self) -> int | None:
        """Make every transaction sent so far fail unless it is already stored, and return the last number stored.

        This moves the node's version past every version that a transaction in flight expects, also those of an earlier
        process of this name: a server may still read them from an abandoned connection.
        None: the node had been removed, so nobody knows which messages in flight were stored.
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
        """Free unused bodies, and remove the nodes unless the producer has a name. Call it with nothing in flight.

        If a body is still unread, everything stays until the cleaner removes it.
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
