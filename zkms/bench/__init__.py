"""`zkms bench`: what the bus can do on a ZooKeeper, beside what the original's algorithm can do on the same one.

suites       what is run: quick, targets, full          targets      what is required, and whether it is met
experiments  what is measured; each returns a row of `results`
processes/   those that do the work, the ZooKeeper to measure, and the meters beside them
algorithms/  zkms, the original, and the floor          report       plot       for people

Publishers and subscribers are processes of their own; this one only gives orders and adds up. Times are of the
monotonic clock, which the processes of a machine share. May import every room below it, and the command line's
credentials and tables. Read `run` first.
"""
