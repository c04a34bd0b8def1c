"""The analysis of trails at scale, in one run: `python -m benchmarks.trails`.

straightforward   one SQL query a question on string ids: the baseline, in Spark's and in DuckDB's dialect
questions         the same questions as the jobs answer them
contestant        one of them in a process of its own; profile says where its time goes
trials            speed, planted, scale       recorder   what a trail costs those who leave it
results           page       plot
"""
