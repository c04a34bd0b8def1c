"""What `spark.dataSource.register` takes."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from zkms_spark.source.options import Options
from zkms_spark.source.sink import ZkmsStreamWriter, ZkmsWriter
from zkms_spark.source.tables import SCHEMAS, TreeReader, table


class ZkmsDataSource(DataSource):
    """Format "zkms": writes rows as messages, in batches and as a stream; reads the live tree."""

    @classmethod
    def name(cls) -> str:
        """As in format("zkms")."""
        return "zkms"

    def schema(self) -> str:
        """Of the table that is read."""
        return SCHEMAS[table(Options.of(self.options))]

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - ours is fixed
        """For spark.read."""
        return TreeReader(Options.of(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For df.write."""
        return ZkmsWriter(Options.of(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """For df.writeStream."""
        return ZkmsStreamWriter(Options.of(self.options), schema, overwrite)
