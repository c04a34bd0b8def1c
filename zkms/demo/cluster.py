"""The nodes as the demo sees them: child processes that answer questions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from zkms.demo.node import CacheReport, ReadUsers
from zkms.errors import ZkmsError
from zkms.server.child import TalkingChild

PATIENCE = 120.0
"""Seconds for a node to answer, on a busy machine."""
_decoder = msgspec.json.Decoder(CacheReport)


class DemoFailed(ZkmsError):
    """Something did not happen as the demo says it does."""


class NodeProcess(TalkingChild):
    """One node."""

    def __init__(
        self, name: str, hosts: str, database: Path, session_timeout: float, log: Path, trail: str | None
    ) -> None:
        arguments = [hosts, name, str(database), str(session_timeout), *([] if trail is None else [trail])]
        super().__init__(name, "zkms.demo.node", *arguments, log=log, error=DemoFailed)
        self.subscription = ""

    def await_ready(self) -> None:
        """Return when it has subscribed."""
        self.subscription = self.answer(_decoder, PATIENCE).subscription

    def read(self, users: Iterable[int]) -> CacheReport:
        """What it knows of these users."""
        self.tell(ReadUsers(list(users)))
        return self.answer(_decoder, PATIENCE)
