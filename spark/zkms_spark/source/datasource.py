"""The data source, for `spark.dataSource.register`."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from zkms import InvalidArgument
from zkms_spark.source.messages import SCHEMA
from zkms_spark.source.options import Options
from zkms_spark.source.sink import ZkmsStreamWriter, ZkmsWriter
from zkms_spark.source.tables import SCHEMAS, TreeReader, table


class ZkmsDataSource(DataSource):
    """Format "zkms": rows as messages and messages as rows, in batches and as a stream; reads the live tree."""

    @classmethod
    def name(cls) -> str:
        """As in format("zkms")."""
        return "zkms"

    def schema(self) -> str:
        """Of the stream that is read, which has a name, or of the table."""
        options = Options.of(self.options)
        return SCHEMA if options.read is None and options.name is not None else SCHEMAS[table(options)]

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - ours is fixed
        """For spark.read."""
        return TreeReader(Options.of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """For spark.readStream."""
        try:
            from zkms_spark.source.stream import ZkmsStreamReader
        except ImportError as error:
            raise InvalidArgument(f"to read a topic as a stream takes Spark 4.2 or newer: {error}") from error
        reader = ZkmsStreamReader(Options.of(self.options))
        if schema.fieldNames() != [column.split()[0] for column in SCHEMA.split(", ")]:
            raise InvalidArgument("the columns of a stream are fixed: leave out schema(), and use from_json on 'data'")
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For df.write."""
        return ZkmsWriter(Options.of(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """For df.writeStream."""
        return ZkmsStreamWriter(Options.of(self.options), schema, overwrite)
