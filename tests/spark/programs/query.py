"""A streaming query from a topic into files, until it is killed: HOSTS ROOT CHECKPOINT SINK."""

from __future__ import annotations

import sys

from pyspark.errors import StreamingQueryException
from zkms_spark.session import open_session
from zkms_spark.source import ZkmsDataSource


def main() -> None:
    hosts, root, checkpoint, sink = sys.argv[1:]
    with open_session("local[1]", {"spark.driver.memory": "600m"}, small=True) as spark:
        spark.dataSource.register(ZkmsDataSource)
        options = {"hosts": hosts, "root": root, "topic": "users", "name": "etl", "maxMessagesPerBatch": "10"}
        stream = spark.readStream.format("zkms").options(**options).load().select("id", "data")
        while True:  # Spark gives up if its new Python takes more than ten seconds to start
            query = stream.writeStream.format("json").option("checkpointLocation", checkpoint).start(sink)
            try:
                query.awaitTermination()
            except StreamingQueryException as error:
                if "failed to connect back" not in str(error):
                    raise


if __name__ == "__main__":
    main()
