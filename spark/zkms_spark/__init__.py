"""Analyses a trail, the record of every message, with Spark: on a laptop or on a cluster.

In the order of an analysis:

session    Spark, started and ended         javahome   the Java it runs on       gateway   Spark's JVM
schema     a trail as Spark reads it        effort     how much Spark prepares
audit/     every guarantee, with evidence   traffic/   throughput, latency, lag, retries, hot keys
material   results that jobs share          jobs       the tables                analysis  all, in bounded memory
report/    one HTML file                    job        for spark-submit
live/      the same figures as trails arrive, and alerts: a streaming job
source/    the data source `zkms`: rows as messages; the one part that needs zkms itself

Every job is a function from DataFrames to a DataFrame; nothing runs in Python but on the driver. May import
`zkms` only where it says so, as a cluster has this package alone. Read `analysis` first.
"""
