"""`zkms bench`: what the bus can do on a ZooKeeper, beside what the original's algorithm can do on the same one.

suites       what is run: quick, targets, full          targets      what is required, and whether it is met
throughput   latency   backlog   purge   curves         the experiments; each returns a row of `results`
crew         processes that do the work                 actor        what runs in each of them, as `orders` say
ours         original   floor                           the algorithms, behind the interface of `algorithm`
site         the ZooKeeper to measure                   meter        requests, CPU and memory; who else is at work
report       plot                                       for people

Publishers and subscribers are processes of their own; this one only gives orders and adds up. Times are of the
monotonic clock, which the processes of a machine share.
"""
