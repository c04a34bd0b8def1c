"""Commands that measure and analyse: trail (and `follow`), report, bench, demo; one command a file.

May import every room below the command line, bench, demo and zkms_spark; what needs Spark is in `spark_report` and
`spark_follow`, which are imported as a whole when their command is at work. Read `report` first.
"""
