"""Staged publishing: many processes stage messages, one publishes all of them, each exactly once.

A job has a name, and runs numbered batches. For each batch, processes stage messages: they store them in ZooKeeper in
chunks, each process under its own name, so that chunks of a failed process are ignored. Then one process commits:

    1. it writes the chunks to publish, in their order, into the job's znode;
    2. it publishes them, one transaction after another;
    3. it writes that the batch is done, and removes the chunks.

If a commit is killed in step 2, the next one finishes it. Each job has its own producer, whose sequence number says
exactly how many messages have been stored. A commit fences first, so that an earlier one that is still alive cannot
publish in parallel. A finished batch is never published again.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from zkms.context import Context
from zkms.errors import (
    BadVersion,
    ConnectionLost,
    InvalidArgument,
    NodeMissing,
    NotEmpty,
    StoreError,
    ZkmsError,
)
from zkms.message import frame as frames
from zkms.message.frame import Packed
from zkms.names import check_name, check_topic
from zkms.publish.options import IfNobody, Kind
from zkms.publish.packer import Packer
from zkms.publish.producer import Producer
from zkms.publish.publisher import Publisher, result
from zkms.tree.layout import ensure_tree
from zkms.tree.paths import Tree
from zkms.tree.records import ProducerState, overwritten, read_record
from zkms.zookeeper.deletion import delete_children
from zkms.zookeeper.operations import Create, Delete, Operation, SetData
from zkms.zookeeper.recipes import attempt, create_if_missing
from zkms.zookeeper.session import Session

log = logging.getLogger("zkms.replay")
CHUNK_BYTES = 128 * 1024
CHUNK_MESSAGES = 2000
MESSAGE_BYTES = 192 * 1024
"""The largest message: it must fit into a transaction with the names of the queues."""
BUFFERED_BYTES = 8 * 1024 * 1024
"""The most bytes in memory, all topics together: beyond that a chunk is written before it is full."""
DEFAULT_BYTES = 64 * 1024 * 1024
"""The most bytes staged for one run by default: ZooKeeper keeps them in memory."""
REMEMBERED = 30 * 86400.0
"""Seconds for which a finished job is remembered, so that it is not repeated."""
ABANDONED = 86400.0
"""Seconds after which the next job removes uncommitted chunks."""
SWEEP_EVERY = 3600.0
"""Seconds between two removals of old jobs."""
ONCE = "once-"


class CommitParts(Protocol):
    """The parts of a bus that a commit needs."""

    @property
    def context(self) -> Context: ...

    @property
    def publisher(self) -> Publisher: ...


class CommitBus(Protocol):
    """A bus that is closed at the end of its `with` block."""

    @property
    def parts(self) -> CommitParts: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


Connect = Callable[[str], CommitBus]
"""Connects as the producer of this name."""


class StagingFull(ZkmsError):
    """More bytes were staged than allowed."""


class NotAllPublished(ZkmsError):
    """A commit that failed before its end; `published` of `total` messages are stored."""

    def __init__(self, job: str, published: int, total: int, reason: object) -> None:
        rest = "" if not published else f"; commit again under the id {job!r} to have the rest published, each once"
        super().__init__(f"{published:,} of {total:,} messages were published: {reason}{rest}")
        self.job = job
        self.published = published
        self.total = total


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Messages of one topic that were staged together."""

    part: str
    number: int
    topic: str
    count: int


class Job(msgspec.Struct, frozen=True, tag_field="zkms", tag="staged", omit_defaults=True):
    """The data of `staged/JOB`. While `run` is set, its chunks are being published as `batch`.

    `position` messages had been processed when the producer's number was `seq`.
    """

    done: int = -1
    """The last finished batch."""
    rows: int = 0
    """The number of its messages."""
    run: str = ""
    batch: int = -1
    chunks: list[Chunk] = []
    position: int = 0
    seq: int = 0

    @property
    def total(self) -> int:
        """Messages of the run."""
        return sum(chunk.count for chunk in self.chunks)


class Staged(msgspec.Struct, array_like=True):
    """One staged message."""

    data: Any
    key: str | None = None
    headers: dict[str, str] | None = None


def new_run() -> str:
    """Return a new name for a run."""
    return f"run-{secrets.token_hex(8)}"


def new_job() -> str:
    """Return a new name for a job that runs once."""
    return f"{ONCE}{secrets.token_hex(8)}"


def producer_of(job: str) -> str:
    """Return the name of a job's producer. Its znode stays after the job, as a fence against late commits."""
    return f"staged-{job}"


class Stage:
    """Stages the messages of one process. Not thread-safe."""

    def __init__(self, session: Session, tree: Tree, job: str, run: str, *, max_bytes: int = DEFAULT_BYTES) -> None:
        self._session = session
        self._tree = tree
        self._run = tree.staged_run(check_name("job", job), run)
        self.part = f"part-{secrets.token_hex(8)}"
        self._path = tree.staged_part(job, run, self.part)
        self._most = max_bytes
        self._waiting: dict[str, tuple[list[bytes], int]] = {}
        self._buffered = 0
        self._stored = 0
        self._chunks: list[Chunk] = []
        ensure_tree(session, tree)
        create_if_missing(session, tree.staged, tree.staged_job(job))
        create_if_missing(session, self._run, data=b"0")
        create_if_missing(session, self._path)

    def add(self, topic: str, data: Any, *, key: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        """Stage one message; `InvalidArgument` if it could not be published."""
        packed = frames.pack(data, key, dict(headers) if headers else None)  # raises if the message is invalid
        if packed.size > MESSAGE_BYTES:
            raise InvalidArgument(
                f"a message of {packed.size:,} bytes to {topic!r} is over the limit of {MESSAGE_BYTES:,}: "
                "send a reference to the data instead"
            )
        raw = msgspec.msgpack.encode(Staged(data, key, dict(headers) if headers else None))
        rows, size = self._waiting.get(topic) or ([], 0)
        if not rows:
            check_topic(topic)
        elif size + len(raw) > CHUNK_BYTES:
            self._write(topic)
            rows, size = [], 0
        rows.append(raw)
        self._waiting[topic] = rows, size + len(raw)
        self._buffered += len(raw)
        if len(rows) >= CHUNK_MESSAGES:
            self._write(topic)
        elif self._buffered > BUFFERED_BYTES:
            self._write(max(self._waiting, key=lambda name: self._waiting[name][1]))

    def finish(self) -> list[Chunk]:
        """Write the remaining messages, and return all chunks for the commit."""
        for topic in list(self._waiting):
            self._write(topic)
        return self._chunks

    def discard(self) -> None:
        """Remove the chunks of this process, as far as possible, because it has failed."""
        try:
            delete_children(self._session, self._path)
            self._session.multi([Delete(self._path)])
            self._account(-self._stored, [])
        except ZkmsError as error:
            log.info("what %s has staged is left to a later job: %s", self.part, error)

    def _write(self, topic: str) -> None:
        rows, size = self._waiting.pop(topic)
        self._buffered -= size
        chunk = Chunk(self.part, len(self._chunks), topic, len(rows))
        raw = msgspec.msgpack.encode([msgspec.Raw(row) for row in rows])
        self._account(len(raw), [Create(f"{self._path}/{chunk.number}", raw)])
        self._stored += len(raw)
        self._chunks.append(chunk)

    def _account(self, size: int, operations: Sequence[Operation]) -> None:
        """Run these operations if the run stays within its limit."""
        while True:
            data, stat = self._session.get(self._run)
            used = _count(data, self._run) + size
            if used > self._most:
                raise StagingFull(
                    f"more than {self._most:,} bytes were staged for one job, and ZooKeeper keeps them in memory: "
                    "publish references to the data, split the job, or allow more with max_staged_bytes"
                )
            counted = SetData(self._run, b"%d" % used, stat.version)
            if attempt(self._session, [counted, *operations], BadVersion).stored:
                return


class Committer:
    """Publishes the staged messages of one job."""

    def __init__(self, connect: Connect, job: str, *, if_nobody: IfNobody = "raise") -> None:
        self._job = check_name("job", job)
        self._producer = check_name("job", producer_of(job))
        self._connect = connect
        self._drop = if_nobody == "drop"

    def commit(self, run: str, batch: int, chunks: Sequence[Chunk], *, timeout: float = 60.0) -> int:
        """Publish the batch unless it is done; return how many messages this call has published.

        An unfinished commit of this job is finished first. ZooKeeper may be unreachable for `timeout` seconds.
        """
        ordered = sorted(chunks, key=lambda chunk: chunk.topic)  # one topic after the other, processes in their order
        published, deadline = 0, time.monotonic() + timeout
        while True:
            try:
                with self._connect(self._producer) as bus:
                    parts, context = bus.parts, bus.parts.context
                    while self._begin(context, run, batch, ordered):
                        published += self._carry_out(parts)
                    _remove(context.session, context.tree.staged_run(self._job, run))
                    self._remove_old(context)
                    return published
            except ConnectionLost as error:
                if time.monotonic() >= deadline:
                    raise self._failure(error) from error
                log.warning("publishing goes on when ZooKeeper is back: %s", error)
            except ZkmsError as error:
                raise self._failure(error) from error

    def abort(self, run: str) -> None:
        """Remove the staged messages, unless some are published already: then the next commit publishes the rest."""
        with self._connect(new_run()) as bus:
            context = bus.parts.context
            path = context.tree.staged_job(self._job)
            try:
                state, version = _read(context, path)
            except NodeMissing:
                return
            if state.run == run:
                if self._reached(context, state) > 0:
                    return
                _write(context, path, Job(state.done, state.rows), version)
            _remove(context.session, context.tree.staged_run(self._job, run))

    def _begin(self, context: Context, run: str, batch: int, chunks: list[Chunk]) -> bool:
        """Write the batch into the job's znode, unless one is unfinished; False if the batch is done."""
        path = context.tree.staged_job(self._job)
        create_if_missing(context.session, context.tree.staged, path)
        while True:
            seq = self._fence(context)
            state, version = _read(context, path)
            if state.run:
                return True
            if batch <= state.done:
                return False
            try:
                _write(context, path, Job(state.done, state.rows, run, batch, chunks, seq=seq), version)
            except BadVersion:
                continue  # another commit of this job has written it, or we have and the reply was lost
            return True

    def _fence(self, context: Context) -> int:
        """Fence the job's producer, and return the last number stored."""
        return Producer(context.session, context.tree, self._producer, context.client_id).fence() or 0

    def _carry_out(self, parts: CommitParts) -> int:
        """Publish the rest of the batch in the job's znode."""
        context = parts.context
        path = context.tree.staged_job(self._job)
        seq = self._fence(context)
        state, version = _read(context, path)
        if not state.run:
            return 0  # finished by another
        version = _write(context, path, state, version)  # another commit's writes are refused from now on
        position = start = state.position + seq - state.seq
        if seq < state.seq or position > state.total:
            raise StoreError(f"the number of the producer {self._producer!r} was changed by another", path=path)
        for kind, packed in self._frames(parts, state, position):
            deadline = time.monotonic() + context.config.request_timeout
            result(parts.publisher.send(kind, packed, deadline), deadline)
            position += len(packed)
            now = _stored(context, self._producer)
            if now - state.seq != position - state.position:  # there were no subscribers, so nothing was stored
                state = msgspec.structs.replace(state, position=position, seq=now)
                version = _write(context, path, state, version)
        _write(context, path, Job(state.batch, state.total), version)
        _remove(context.session, context.tree.staged_run(self._job, state.run))
        return position - start

    def _frames(self, parts: CommitParts, state: Job, position: int) -> Iterator[tuple[Kind, list[Packed]]]:
        """Yield the frames to publish after the first `position` messages."""
        context, before = parts.context, 0
        for chunk in state.chunks:
            skipped = max(0, position - before)
            before += chunk.count
            if skipped >= chunk.count:
                continue
            path = f"{context.tree.staged_part(self._job, state.run, chunk.part)}/{chunk.number}"
            rows = _rows(context.session.get(path)[0], path)[skipped:]
            kind = Kind(check_topic(chunk.topic), drop=self._drop)
            packer = Packer(parts.publisher.budget(kind, time.monotonic() + context.config.request_timeout))
            for frame in packer.fill(frames.pack(row.data, row.key, row.headers) for row in rows):
                yield kind, frame
            if packer.packed:
                yield kind, packer.packed

    def _reached(self, context: Context, state: Job) -> int:
        return state.position + _stored(context, self._producer) - state.seq

    def _failure(self, error: ZkmsError) -> ZkmsError:
        """Return the error with the number of published messages."""
        try:
            with self._connect(new_run()) as bus:
                context = bus.parts.context
                state, _ = _read(context, context.tree.staged_job(self._job))
                if not state.run:
                    return error
                return NotAllPublished(self._job, self._reached(context, state), state.total, error)
        except ZkmsError:
            return error

    def _remove_old(self, context: Context) -> None:
        """Remove old jobs and uncommitted chunks, every `SWEEP_EVERY` seconds."""
        tree, session, now = context.tree, context.session, time.time()
        try:
            data, stat = session.get(tree.staged)
            if data and now - stat.mtime / 1000 < SWEEP_EVERY:
                return
            session.multi([SetData(tree.staged, b"swept", stat.version)])
            for job in session.children(tree.staged)[0]:
                self._remove_if_old(context, job, now)
        except ZkmsError as error:
            log.info("what is old in %s is left for the next time: %s", tree.staged, error)

    def _remove_if_old(self, context: Context, job: str, now: float) -> None:
        tree, session = context.tree, context.session
        state, stat = _read_with_stat(context, tree.staged_job(job))
        for run in session.children(tree.staged_job(job))[0]:
            made = session.exists(tree.staged_run(job, run))
            if run != state.run and made is not None and now - made.mtime / 1000 > ABANDONED:
                _remove(session, tree.staged_run(job, run))
        kept = ABANDONED if job.startswith(ONCE) else REMEMBERED
        if job != self._job and now - stat.mtime / 1000 > kept and (not state.run or job.startswith(ONCE)):
            _remove(session, tree.staged_job(job))
            _remove(session, tree.producer(producer_of(job)))


def _stored(context: Context, producer: str) -> int:
    """Return the last number that the producer has stored."""
    path = context.tree.producer(producer)
    try:
        return read_record(context.session.get(path)[0], ProducerState, path).seq
    except NodeMissing:
        return 0


def _rows(raw: bytes, path: str) -> list[Staged]:
    try:
        return msgspec.msgpack.decode(raw, type=list[Staged])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise overwritten(path, error) from error


def _count(data: bytes, path: str) -> int:
    """Return the bytes that a run has staged."""
    if len(data) > 18 or not (data or b"0").isdigit():
        raise overwritten(path, "no number of bytes")
    return int(data or b"0")


def _read(context: Context, path: str) -> tuple[Job, int]:
    state, stat = _read_with_stat(context, path)
    return state, stat.version


def _read_with_stat(context: Context, path: str) -> tuple[Job, Any]:
    data, stat = context.session.get(path)
    return read_job(data, path), stat


def read_job(data: bytes, path: str) -> Job:
    """Decode a job; `StoreError` if another program wrote the data, or it has an invalid name."""
    try:
        job = msgspec.json.decode(data, type=Job) if data else Job()
        for name in ([job.run] if job.run else []) + [chunk.part for chunk in job.chunks]:
            check_name("part", name)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InvalidArgument) as error:
        raise overwritten(path, error) from error
    return job


def _write(context: Context, path: str, state: Job, version: int) -> int:
    """Write the job at this version, and return the next version."""
    (stat,) = attempt(context.session, [SetData(path, msgspec.json.encode(state), version)]).results
    return int(stat.version)


def _remove(session: Session, path: str) -> None:
    """Remove a znode and its children, also those that are added meanwhile."""
    while True:
        delete_children(session, path)
        done = attempt(session, [Delete(path)], NodeMissing, NotEmpty)
        if done.refused is None or isinstance(done.refused.cause, NodeMissing):
            return
