"""Staged publishing: many processes put messages aside, one publishes all of them, each exactly once.

A job has a name, and runs numbered batches. For each, processes stage: messages are put aside in ZooKeeper, in chunks,
each process under a name of its own, so that one that fails leaves nothing that counts. Then one process commits:

    1. it writes down in the job's znode which chunks are to be published, in which order;
    2. it publishes them, one transaction after another;
    3. it writes down that the batch is done, and removes what was staged.

A commit that is killed in 2 is finished by the next one. The producer is the job's own, and every transaction moves its
sequence number on: the number says exactly how many messages have been stored. A fence comes first, so that a commit
that was only thought dead cannot go on beside it. A batch that is done is not done again, whoever asks.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import msgspec

from zkms.context import Context
from zkms.errors import (
    BadVersion,
    ConnectionLost,
    InvalidArgument,
    NodeExists,
    NodeMissing,
    NotEmpty,
    StoreError,
    TransactionFailed,
    ZkmsError,
)
from zkms.message import frame as frames
from zkms.names import check_name, check_topic
from zkms.publish.many import result
from zkms.publish.producer import Producer
from zkms.publish.receipt import Receipt
from zkms.publish.shipment import IfNobody
from zkms.tree.layout import ensure_tree
from zkms.tree.paths import Tree
from zkms.tree.records import ProducerState, overwritten, read_record
from zkms.zookeeper.deletion import delete_children
from zkms.zookeeper.operations import Create, Delete, Operation, SetData
from zkms.zookeeper.session import Session, failed_with

log = logging.getLogger("zkms.staging")
CHUNK_BYTES = 128 * 1024
CHUNK_MESSAGES = 2000
MESSAGE_BYTES = 192 * 1024
"""Of one message: it has to fit into a transaction with the names of the queues."""
BUFFERED_BYTES = 8 * 1024 * 1024
"""Of all topics together, before a chunk is written that is not full."""
DEFAULT_BYTES = 64 * 1024 * 1024
"""Staged for one run, if nothing else is said: ZooKeeper keeps it in memory."""
REMEMBERED = 30 * 86400.0
"""Seconds that a job which is done is remembered, so that it is not done again."""
ABANDONED = 86400.0
"""Seconds after which what nobody committed is removed by the next job."""
SWEEP_EVERY = 3600.0
"""Seconds between two looks for these."""
ONCE = "once-"


class Connected(NamedTuple):
    """What a commit needs of a context."""

    context: Context
    send: Callable[..., Future[Receipt]]
    frame_budget: Callable[[str, float], tuple[int, int]]


Connect = Callable[[str], AbstractContextManager[Connected]]
"""Connects as the producer of this name, for the block."""


class StagingFull(ZkmsError):
    """More was put aside than ZooKeeper is to keep."""


class NotAllPublished(ZkmsError):
    """A commit that could not be carried out to its end; `published` of `total` messages are stored."""

    def __init__(self, job: str, published: int, total: int, reason: object) -> None:
        rest = "" if not published else f"; commit again under the id {job!r} to have the rest published, each once"
        super().__init__(f"{published:,} of {total:,} messages were published: {reason}{rest}")
        self.job = job
        self.published = published
        self.total = total


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Messages of one topic that were put aside together."""

    part: str
    number: int
    topic: str
    count: int


class Job(msgspec.Struct, frozen=True, tag_field="zkms", tag="staged", omit_defaults=True):
    """The data of `staged/JOB`. While `run` is set, its chunks are being published: as `batch`.

    `position` messages had been dealt with when the producer's number was `seq`.
    """

    done: int = -1
    """The last batch that is done."""
    rows: int = 0
    """Of that one."""
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
    """One message as it is put aside."""

    data: Any
    key: str | None = None
    headers: dict[str, str] | None = None


def new_run() -> str:
    """A name for a run."""
    return f"run-{secrets.token_hex(8)}"


def new_job() -> str:
    """A name for a job that will not be asked for again."""
    return f"{ONCE}{secrets.token_hex(8)}"


def producer_of(job: str) -> str:
    """Whose numbers a job's messages have. It stays when the job is done: one that was thought dead is fenced by it."""
    return f"staged-{job}"


class Stage:
    """Puts messages of one process aside. Not thread-safe."""

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
        for path in (tree.staged, tree.staged_job(job), self._run, self._path):
            _ensure(session, path, b"0" if path == self._run else b"")

    def add(self, topic: str, data: Any, *, key: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        """Put one message aside; `InvalidArgument` if it could not be published."""
        packed = frames.pack(data, key, dict(headers) if headers else None)  # whatever is wrong is said here
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
        """Write what is left; returns what a commit needs to know."""
        for topic in list(self._waiting):
            self._write(topic)
        return self._chunks

    def discard(self) -> None:
        """This attempt has failed: remove what it has put aside, as far as that can be done."""
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
        """Carry these out, if the run stays within its bound."""
        while True:
            data, stat = self._session.get(self._run)
            used = _count(data, self._run) + size
            if used > self._most:
                raise StagingFull(
                    f"more than {self._most:,} bytes were staged for one job, and ZooKeeper keeps them in memory: "
                    "publish references to the data, split the job, or allow more with max_staged_bytes"
                )
            try:
                self._session.multi([SetData(self._run, b"%d" % used, stat.version), *operations])
                return
            except TransactionFailed as error:
                if not failed_with(error, BadVersion):
                    raise error.cause from error


class Committer:
    """Publishes what was staged for one job."""

    def __init__(self, connect: Connect, job: str, *, if_nobody: IfNobody = "raise") -> None:
        self._job = check_name("job", job)
        self._producer = check_name("job", producer_of(job))
        self._connect = connect
        self._drop: IfNobody = if_nobody

    def commit(self, run: str, batch: int, chunks: Sequence[Chunk], *, timeout: float = 60.0) -> int:
        """Publish the batch, unless it is done; returns how many messages this call has published.

        A commit of this job that was not finished is finished first. ZooKeeper may be away for `timeout` seconds.
        """
        ordered = sorted(chunks, key=lambda chunk: chunk.topic)  # one topic after the other, processes in their order
        published, deadline = 0, time.monotonic() + timeout
        while True:
            try:
                with self._connect(self._producer) as connected:
                    context = connected.context
                    while self._begin(context, run, batch, ordered):
                        published += self._carry_out(connected)
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
        """Remove what was staged, unless part of it is published: that is for the next commit to finish."""
        with self._connect(new_run()) as (context, *_):
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
        """Whether there is something to carry out, which is written down then; False if the batch is done."""
        path = context.tree.staged_job(self._job)
        for ancestor in (context.tree.staged, path):
            _ensure(context.session, ancestor)
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
                continue  # by a commit of the same job at the same time, or by us, and the answer was lost
            return True

    def _fence(self, context: Context) -> int:
        """The last number that was stored; from now on nobody else stores any."""
        return Producer(context.session, context.tree, self._producer, context.client_id).fence() or 0

    def _carry_out(self, connected: Connected) -> int:
        """Publish what is left of what was begun."""
        context = connected.context
        path = context.tree.staged_job(self._job)
        seq = self._fence(context)
        state, version = _read(context, path)
        if not state.run:
            return 0  # finished by another
        version = _write(context, path, state, version)  # from now on nobody else writes here
        position = start = state.position + seq - state.seq
        if seq < state.seq or position > state.total:
            raise StoreError(f"the number of the producer {self._producer!r} was changed by another", path=path)
        for topic, packed in self._frames(connected, state, position):
            deadline = time.monotonic() + context.config.request_timeout
            result(connected.send(topic, packed, True, self._drop, deadline), deadline)
            position += len(packed)
            now = _stored(context, self._producer)
            if now - state.seq != position - state.position:  # nobody was there, and nothing stored: note that first
                state = msgspec.structs.replace(state, position=position, seq=now)
                version = _write(context, path, state, version)
        _write(context, path, Job(state.batch, state.total), version)
        _remove(context.session, context.tree.staged_run(self._job, state.run))
        return position - start

    def _frames(self, connected: Connected, state: Job, position: int) -> Iterator[tuple[str, list[frames.Packed]]]:
        """What is to be published after the first `position` messages, as much together as fits."""
        context, before = connected.context, 0
        for chunk in state.chunks:
            skipped = max(0, position - before)
            before += chunk.count
            if skipped >= chunk.count:
                continue
            path = f"{context.tree.staged_part(self._job, state.run, chunk.part)}/{chunk.number}"
            rows = _rows(context.session.get(path)[0], path)[skipped:]
            largest, most = connected.frame_budget(chunk.topic, time.monotonic() + context.config.request_timeout)
            frame: list[frames.Packed] = []
            size = 0
            for row in rows:
                packed = frames.pack(row.data, row.key, row.headers)
                if frame and (size + packed.size > largest or len(frame) >= most):
                    yield chunk.topic, frame
                    frame, size = [], 0
                frame.append(packed)
                size += packed.size
            if frame:
                yield chunk.topic, frame

    def _reached(self, context: Context, state: Job) -> int:
        return state.position + _stored(context, self._producer) - state.seq

    def _failure(self, error: ZkmsError) -> ZkmsError:
        """The same, with how far it came."""
        try:
            with self._connect(new_run()) as (context, *_):
                state, _ = _read(context, context.tree.staged_job(self._job))
                if not state.run:
                    return error
                return NotAllPublished(self._job, self._reached(context, state), state.total, error)
        except ZkmsError:
            return error

    def _remove_old(self, context: Context) -> None:
        """Now and then: jobs that nobody will ask for again, and what nobody has committed."""
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
    """The last number that the producer has stored, as far as we have heard."""
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
    """The bytes that a run has staged."""
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
    """The job in a znode's data; `StoreError` if another program wrote it, or it names what is no part of a run."""
    try:
        job = msgspec.json.decode(data, type=Job) if data else Job()
        for name in ([job.run] if job.run else []) + [chunk.part for chunk in job.chunks]:
            check_name("part", name)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InvalidArgument) as error:
        raise overwritten(path, error) from error
    return job


def _write(context: Context, path: str, state: Job, version: int) -> int:
    """Write the job down at this version; returns the next one."""
    try:
        stat = context.session.multi([SetData(path, msgspec.json.encode(state), version)])[0]
    except TransactionFailed as error:
        raise error.cause from error
    return int(stat.version)


def _ensure(session: Session, path: str, data: bytes = b"") -> None:
    if session.exists(path) is None:
        try:
            session.multi([Create(path, data)])
        except TransactionFailed as error:
            if not failed_with(error, NodeExists):
                raise error.cause from error


def _remove(session: Session, path: str) -> None:
    """With all that is below it, also if somebody adds to it meanwhile."""
    while True:
        delete_children(session, path)
        try:
            session.multi([Delete(path)])
            return
        except TransactionFailed as error:
            if failed_with(error, NodeMissing):
                return
            if not failed_with(error, NotEmpty):
                raise error.cause from error
