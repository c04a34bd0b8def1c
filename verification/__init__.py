"""Programs that verify the guarantees, beside the tests. README.md maps each guarantee to what verifies it.

simulation   the real code in simulated worlds, each decided by its seed
faults       injected faults (nemeses) on real ensembles while messages flow
mutations    each mechanism switched off once: a test has to fail
soak         long runs: does anything grow?
fuzz         bad input of every kind
walk         not a trial, but a measure: which files a message's life crosses, thread by thread
"""
