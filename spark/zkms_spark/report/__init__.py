"""The report: one HTML file with sentences, tables and plots.

May import the analysis and the jobs' results, and no Spark: what comes here is small. Read `report` first.
"""
