"""Rows onto topics, exactly once: tasks stage, the job's commit publishes. See zkms/replay/stage.py for how.

Of several attempts of a task Spark lets one win, and only what that one has staged is published. What other attempts
have staged is removed with the run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from zkms import InvalidArgument
from zkms.connect import committing
from zkms.replay.stage import Chunk, Committer, Stage, new_job, new_run
from zkms.tree.paths import Tree
from zkms.zookeeper.session import Session
from zkms_spark.source.options import Options
from zkms_spark.source.rows import check_schema, message

log = logging.getLogger("zkms.spark")
QUERY_ID = "sql.streaming.queryId"
"""What Spark calls the id of a streaming query, which lives in its checkpoint."""

BATCH_ID = "streaming.sql.batchId"


@dataclass
class Written(WriterCommitMessage):
    """What a task has staged: nothing if it had no rows."""

    partition: int
    job: str | None = None
    run: str | None = None
    chunks: tuple[tuple[Any, ...], ...] = ()


class Writing:
    """What the batch and the streaming sink share; pickled, and sent to every task."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise InvalidArgument("a topic cannot be overwritten: use mode('append')")
        check_schema(schema, options.topic)
        self.options = options

    def stage(self, rows: Iterator[Row], job: str, run: str) -> Written:
        """Put the rows of one task aside."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        first = next(rows, None)
        if first is None:
            return Written(partition)
        session = Session(self.options.config())
        session.start()
        try:
            stage = Stage(session, Tree(self.options.root), job, run, max_bytes=self.options.max_staged_bytes)
            try:
                for row in chain([first], rows):
                    topic, data, key, headers = message(row, self.options.topic)
                    stage.add(topic, data, key=key, headers=headers)
                chunks = stage.finish()
            except BaseException:
                stage.discard()
                raise
        finally:
            session.close()
        plain = tuple((chunk.part, chunk.number, chunk.topic, chunk.count) for chunk in chunks)
        return Written(partition, job, run, plain)

    def committer(self, job: str) -> Committer:
        """Of what was staged for this job."""
        return Committer(
            lambda producer: committing(self.options.connect(producer)), job, if_nobody=self.options.if_nobody
        )


class ZkmsWriter(Writing, DataSourceWriter):
    """Publishes a DataFrame when all of its tasks are done."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        self.job = options.id or new_job()
        self.run = new_run()

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """In a task."""
        return self.stage(iterator, self.job, self.run)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Once, on the driver."""
        chunks = winners(messages)
        if not chunks and self.options.id is None:
            return
        self.committer(self.job).commit(self.run, 0, chunks, timeout=self.options.timeout)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - all of the run goes
        """Where a task or the commit has failed for good."""
        self.committer(self.job).abort(self.run)


class ZkmsStreamWriter(Writing, DataSourceStreamWriter):
    """Publishes each batch of a stream once: a batch that Spark hands over again is known by its number."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        if options.id is not None:  # with another checkpoint its batches would be taken for those of before
            raise InvalidArgument("a stream is known by its checkpoint: leave out the option id")
        self.run = new_run()

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """In a task. The job is the query, whose id is in its checkpoint."""
        context = TaskContext.get()
        job = context and context.getLocalProperty(QUERY_ID)
        if not job:
            raise InvalidArgument("Spark does not say which query this is: a stream of zkms needs Spark 4")
        batch = context and context.getLocalProperty(BATCH_ID)
        return self.stage(iterator, job, f"{self.run}-{batch}")

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Once for each batch, on the driver."""
        for job, run in jobs(messages):
            self.committer(job).commit(run, batchId, winners(messages), timeout=self.options.timeout)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Where a task or the commit of a batch has failed for good."""
        for job, run in jobs(messages):
            self.committer(job).abort(run)


def winners(messages: Sequence[WriterCommitMessage | None]) -> list[Chunk]:
    """What the winning attempts have staged, in the order of the partitions."""
    written = sorted((each for each in messages if isinstance(each, Written)), key=lambda each: each.partition)
    return [Chunk(*chunk) for each in written for chunk in each.chunks]


def jobs(messages: Sequence[WriterCommitMessage | None]) -> set[tuple[str, str]]:
    """The job and run that tasks have staged for: one, or none if there were no rows."""
    return {(each.job, each.run) for each in messages if isinstance(each, Written) and each.job and each.run}
