"""Leads, begins to remove a huge queue, stops at a step that the test chooses, and says how the sweep ended.

HOSTS ROOT STEP [unfenced]. Prints "at STEP" and waits for a line on stdin, before which the test may stop this process
with SIGSTOP until its session has expired. Then prints "refused", "finished" or another error's name.
"""

import sys
import time

from zkms_cleaner import Election, Lead, Sweeper

import zkms
from zkms.errors import TransactionFailed
from zkms.zookeeper import deletion as purge
from zkms.zookeeper.session import State

hosts, root, step, *broken = sys.argv[1:]
if broken:
    Lead.guard = ()  # fencing broken on purpose
purge.BATCH = 50
purge.IN_FLIGHT = 1
bus = zkms.connect(hosts, root, cleaner=False, session_timeout=2.0)
lead = Election(bus.parts.session, bus.parts.tree, bus.client_id).lead()
assert lead is not None
generation = bus.parts.session.generation
steps = 0


def count() -> bool:
    """Called between transactions."""
    global steps
    steps += 1
    if steps == int(step):
        print("at", step, flush=True)
        sys.stdin.readline()
        # The worst case for fencing: a new session stands, and the old sweep goes on over it as if nothing was.
        while bus.parts.session.generation == generation or bus.parts.session.state is not State.CONNECTED:
            time.sleep(0.01)
    return False


try:
    Sweeper(bus.parts.session, bus.parts.tree, grace=0.0, stopped=count).sweep(lead)
    print("finished", flush=True)
except TransactionFailed as error:
    print("refused" if error.operation.path == lead.path else error, flush=True)
