"""Injects faults (nemeses) into real ensembles while messages flow, and checks every guarantee: `make faults`.

campaign     all cells, nemesis by workload          table       cell      the page, and a line of it
trial        one cell of messages                    coherence   cache/    one cell of caches
nemesis      a fault: outages  partitions  clients   ensemble    stage     what it can lay its hands on
switchboard  wires between servers                   disks       clocks
crew         the processes: publisher  consumer  probe           orders    what they are told
journal      what they write down                    checker     pauses    what is made of it
audit        Spark's second opinion
"""
