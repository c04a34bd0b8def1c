"""The cleaner: one of all clients and daemons is elected to remove what dead subscribers have
left behind, and to deliver what has become due.

election   who leads, and the check that every destructive transaction begins with
orphans    finds what nobody owns any more
sweep      one pass: waits their grace out, condemns them, removes them
delays     what is not due yet: near buckets, kept in a wheel; due moves it into the queues
cleaner    the thread that stands for election and sweeps while it leads
daemon     zkms-cleaner: the same as a process; oneshot its --once and --dry-run
metrics    what Prometheus sees; web serves it with /healthz and /readyz
notify     what systemd hears
"""

from zkms_cleaner.cleaner import Cleaner
from zkms_cleaner.election import Election, Lead
from zkms_cleaner.orphans import OrphanFinding
from zkms_cleaner.sweep import SweepCut, Sweeper, Swept

__all__ = ["Cleaner", "Election", "Lead", "OrphanFinding", "SweepCut", "Sweeper", "Swept"]
