"""Runs zkms in a simulated world: a seeded scheduler, a simulated clock, and a small ZooKeeper in memory.

The protocol's real code runs here, unchanged: publish, receive, subscribe, ack, cleaner, groups, delays, cache. The
layers below it are replaced:

    threads, locks and time    clockwork.py, primitives.py   one runs at a time, chosen by the seed; time jumps
    ZooKeeper                  store.py, ensemble.py         two replicas that lag; checked against the real server
    the network                link.py                       requests and replies as bytes, late, or never

A seed determines a schedule: which task runs next, how long everything takes, and which faults happen when (faults.py):
a connection cut before or after a commit, a session expired, a process stopped and resumed or killed, an ensemble that
is down for a while. Then all faults end, and the workload's promises are checked (workloads/). The same seed gives the
same schedule, to the last step: a failure is replayed by its seed, and reduced to the faults that it needs.

    python -m verification.simulation --seeds 10000        # or: make simulate SEEDS=10000
    python -m verification.simulation --workload group --seed 4711 --verbose
"""
