"""The cleaner: one of all clients and daemons is elected to remove what dead subscribers have left behind, and to move
delayed messages into the queues when they are due.

The duties may import `admin` and the rooms below it. Read `cleaner` first.

cleaner    the thread that stands for election and sweeps while it leads
election   who leads, and the check that every destructive transaction begins with
sweep      one pass: waits until the grace of orphans is over, condemns them, removes them
orphans    finds what nobody owns any more; leftovers finds what is past its time
delays     the near buckets of delayed messages, kept in a wheel; due moves frames into the queues

The program around the duties may import the CLI as well.

daemon     zkms-cleaner: the cleaner as a process; oneshot has its --once and --dry-run
metrics    what Prometheus reads; web serves it with /healthz and /readyz
notify     what systemd is told
"""

from zkms_cleaner.cleaner import Cleaner
from zkms_cleaner.election import Election, Lead
from zkms_cleaner.orphans import OrphanFinding
from zkms_cleaner.sweep import SweepCut, Sweeper, Swept

__all__ = ["Cleaner", "Election", "Lead", "OrphanFinding", "SweepCut", "Sweeper", "Swept"]
