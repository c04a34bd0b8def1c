"""The Spark data source `zkms`: rows as messages, messages as rows, and the live tree as tables.

    from zkms_spark.source import ZkmsDataSource

    spark.dataSource.register(ZkmsDataSource)
    df.write.format("zkms").option("hosts", "zk1:2181").option("topic", "users").mode("append").save()
    spark.read.format("zkms").option("hosts", "zk1:2181").option("read", "queues").load()

Unlike the analysis, this part needs zkms itself, on the driver and on the workers: it may import `zkms.replay`,
`zkms.admin` and what is below them. Read `datasource` first.
"""

from __future__ import annotations

from zkms_spark.source.datasource import ZkmsDataSource

__all__ = ["ZkmsDataSource"]
