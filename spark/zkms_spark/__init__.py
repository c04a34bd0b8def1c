"""What every message did: a trail analysed with Spark, from a laptop's cores to a cluster.

In the order of an analysis:

session    Spark, started and ended         javahome   the Java it runs on
schema     a trail as Spark reads it        survey     who wrote it, which of its lines are missing
skew       how far clocks are apart         traffic    throughput, latency, retries
ledger     stored against delivered, by     entries    the ranges behind those that do not balance
           adding up ranges (numbers)       missing, partitions, duplicates, order, deadlines, owners
audit      every guarantee, with evidence   verdict    kept, broken or undecided
lag, hotkeys, incidents                     analysis   all of it, in bounded memory (effort: what is compiled)
summary    in plain words                   report     one HTML file (figures, tables, words, page/)
live/      the same figures as trails arrive, and alerts: a streaming job
source/    the data source `zkms`: rows as messages; the one part that needs zkms itself

Every job is a function from DataFrames to a DataFrame; nothing runs in Python but on the driver.
"""
