"""The cleaner's thread: stands for election, sweeps while it leads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from zkms.errors import TransactionFailed, ZkmsError
from zkms.session import Session, State
from zkms.tree import Tree
from zkms_cleaner.election import Election, Lead
from zkms_cleaner.sweep import Finding, Sweeper

log = logging.getLogger("zkms.cleaner")
INTERVAL = 30.0
GRACE = 30.0


class Cleaner:
    """Runs in every client that does not opt out; at any time one of them works."""

    def __init__(
        self,
        session: Session,
        tree: Tree,
        client_id: str,
        *,
        interval: float = INTERVAL,
        grace: float = GRACE,
        swept: Callable[[Sequence[Finding], float], None] = lambda _findings, _seconds: None,
    ) -> None:
        self.leading = False
        """Whether this one was the leader when it last looked."""
        self.failures = 0
        """Sweeps in a row that could not be finished."""
        self._session = session
        self._interval = interval
        self._swept = swept
        self._election = Election(session, tree, client_id)
        self._sweeper = Sweeper(session, tree, grace=grace)
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="zkms-cleaner", daemon=True)

    def start(self) -> None:
        """Stand for election from now on."""
        self._thread.start()

    def close(self) -> None:
        """Stop sweeping and give up the lead, so that another takes it at once."""
        self._closed = True
        self._election.wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        next_sweep = 0.0
        while not self._closed:
            wait = self._interval
            try:
                lead = self._election.lead() if self._session.state is State.CONNECTED else None
                self.leading = lead is not None
                if lead is not None:
                    if time.monotonic() >= next_sweep:
                        self._sweep(lead)
                        next_sweep = time.monotonic() + self._interval
                    wait = max(0.0, next_sweep - time.monotonic())
                self.failures = 0
            except ZkmsError as error:
                self.failures += 1
                wait = min(self._interval, 1.0)
                if not self._closed:
                    log.warning("sweep cut short, trying again: %s", error)
            self._election.wake.wait(wait)
            self._election.wake.clear()
        try:
            self._election.resign()
        except ZkmsError as error:
            log.info("could not resign; the session's end will do: %s", error)
        self.leading = False

    def _sweep(self, lead: Lead) -> None:
        began = time.monotonic()
        try:
            removed = self._sweeper.sweep(lead)
        except TransactionFailed as error:
            if error.operation.path != lead.path:
                raise
            log.warning("lost the lead in the middle of a sweep: stopped")
            self.leading = False
            return
        self._swept(removed, time.monotonic() - began)
