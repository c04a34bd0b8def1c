"""What tries the guarantees, beside the tests. README.md maps each guarantee to what tries it.

simulation   the real code in simulated worlds, each decided by its seed
faults       nemeses on real ensembles while messages flow
mutations    each mechanism switched off once: a test has to fail
soak         long runs: does anything grow?
fuzz         bad input of every kind
"""
