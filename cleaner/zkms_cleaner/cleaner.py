"""The cleaner's thread: it stands for election, sweeps while it leads, and tells `DelayedView` whether it leads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from zkms.errors import Closed, TransactionFailed, ZkmsError
from zkms.trail.hooks import Recorder
from zkms.tree.paths import Tree
from zkms.zookeeper.session import Session, State
from zkms_cleaner.delays import DelayedView
from zkms_cleaner.election import Election, Lead
from zkms_cleaner.sweep import SweepCut, Sweeper, Swept

log = logging.getLogger("zkms.cleaner")
INTERVAL = 30.0
GRACE = 30.0
PAUSE = 1.0
"""Seconds between two sweeps at the least, and after one that failed."""


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
        unused_after: float | None = None,
        trail: Recorder | None = None,
        swept: Callable[[Swept, float], None] = lambda _swept, _seconds: None,
        failed: Callable[[Exception], None] = lambda _error: None,
    ) -> None:
        self.leading = False
        """Whether this one was the leader when it last looked."""
        self.failures = 0
        """Sweeps in a row that could not be finished."""
        self._session = session
        self._interval = interval
        self._swept = swept
        self._failed = failed
        self._closed = False
        self._election = Election(session, tree, client_id)
        self._sweeper = Sweeper(
            session, tree, grace=grace, unused_after=unused_after, trail=trail, stopped=lambda: self._closed
        )
        self._delays = DelayedView(session, tree, trail=trail, lost=self._election.wake.set)
        self._thread = threading.Thread(target=self._run, name="zkms-cleaner", daemon=True)

    @property
    def standing(self) -> bool:
        """Whether this one is connected and a candidate, so that it leads or will lead if the others go."""
        return self._session.state is State.CONNECTED and self._election.standing

    @property
    def alive(self) -> bool:
        """Whether the thread runs and the session can still come back."""
        return self._thread.is_alive() and self._session.state not in (State.CLOSED, State.REFUSED)

    def start(self) -> None:
        """Stand for election from now on."""
        self._thread.start()
        self._delays.start()

    def close(self, timeout: float = 5.0) -> None:
        """Cut a sweep short and give up the lead, so that another takes it at once; wait `timeout` seconds for that."""
        self._closed = True
        self._delays.close(timeout)
        self._election.wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        next_sweep = 0.0
        while not self._closed:
            wait = self._interval
            try:
                lead = self._election.lead() if self._session.state is State.CONNECTED else None
                self._tell(lead is not None)
                self._delays.set_lead(lead)
                if lead is not None:
                    if time.monotonic() >= next_sweep:
                        next_sweep = self._sweep(lead)
                    wait = max(0.0, next_sweep - time.monotonic())
                self.failures = 0
            except SweepCut:
                log.info("sweep cut short: the cleaner is closing")
            except Exception as error:  # noqa: BLE001 - a cleaner that dies of one sweep would leave all that comes later
                wait = min(self._interval, PAUSE)
                self._fail(error)
            self._election.wake.wait(wait)
            self._election.wake.clear()
        try:
            self._election.resign()
        except ZkmsError as error:
            log.info("could not resign, the session's end will do: %s", error)
        self._tell(False)

    def _sweep(self, lead: Lead) -> float:
        """Sweep once and return when to do so again."""
        began = time.monotonic()
        try:
            swept = self._sweeper.sweep(lead)
        except TransactionFailed as error:
            if not lead.lost_by(error):
                raise
            log.warning("lost the lead in the middle of a sweep: stopped")
            self._tell(False)
            self._election.wake.set()
            return 0.0
        now = time.monotonic()
        self._swept(swept, now - began)
        # Not later than the next orphan's grace is over.
        return now + max(min(PAUSE, self._interval), min([self._interval, *(f.due_in for f in swept.waiting)]))

    def _tell(self, leading: bool) -> None:
        if leading != self.leading:
            log.info("leads the cleaners from now on" if leading else "does not lead the cleaners any more")
        self.leading = leading

    def _fail(self, error: Exception) -> None:
        if self._closed or isinstance(error, Closed):
            return
        self.failures += 1
        if isinstance(error, ZkmsError):
            log.warning("sweep cut short, trying again: %s", error)
        else:
            log.exception("a sweep failed in a way nobody thought of, trying again")
        try:
            self._failed(error)
        except Exception:
            log.exception("the cleaner's failure could not be reported")
