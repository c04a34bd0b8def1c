"""The figures live: a Structured Streaming job over a trail as it arrives.

In the order of a batch:

cells      a batch of the trail, added up       window    a minute's figures, in a file that people can read
slo        limits, and alerts beyond them       progress  how far the job is, stored with its alerts
follow     the job                              alerts    where alerts go: console, webhook, a zkms topic
settings   its settings                         job       for spark-submit

May import the analysis, and zkms only to publish alerts. Read `follow` first.
"""
