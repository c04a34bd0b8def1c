"""Where an export goes: a directory, on any file system that fsspec knows."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import fsspec
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from zkms.errors import InvalidArgument, ZkmsError
from zkms.trail.export.columns import parquet_writer, write
from zkms.trail.export.reader import Bad

MARKS = "_exported"
QUARANTINE = "_quarantine"
"""With an underscore, so that Spark and others do not take them for data."""
SHOWN = 10_000
"""Bytes of a bad line that are kept."""


class ExportTarget:
    """A place for parts, marks and what was set aside."""

    def __init__(self, to: str) -> None:
        try:
            self._fs, self._root = url_to_fs(to)
        except (ImportError, ValueError) as error:
            raise InvalidArgument(f"--to {to!r}: {error}") from error
        self._root = self._root.rstrip("/")
        try:
            for place in (MARKS, QUARANTINE):
                self._fs.makedirs(f"{self._root}/{place}", exist_ok=True)
        except OSError as error:
            raise InvalidArgument(f"cannot write to {to!r}: {error.strerror or error}") from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Only one export at a time, where the file system is this machine's."""
        if not isinstance(self._fs, LocalFileSystem):
            yield
            return
        descriptor = os.open(f"{self._root}/{MARKS}/.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError as error:
            raise ZkmsError(f"another export to {self._root} is under way: try again when it is done") from error
        finally:
            os.close(descriptor)

    def marks(self) -> set[str]:
        """Names of the files that are done."""
        found = self._fs.ls(f"{self._root}/{MARKS}", detail=False, refresh=True)
        return {Path(path).name.removesuffix(".json") for path in found if path.endswith(".json")}

    def mark(self, name: str, content: bytes) -> None:
        """That file is done."""
        with self._file(f"{MARKS}/{name}.json") as file:
            file.write(content)

    def read_mark(self, name: str) -> bytes:
        """What is remembered of a file that is done."""
        content: bytes = self._fs.cat_file(f"{self._root}/{MARKS}/{name}.json")
        return content

    def quarantine(self, name: str) -> str:
        """Where the bad lines of a file are."""
        return f"{self._root}/{QUARANTINE}/{name}.jsonl"

    @contextmanager
    def parts(self, name: str) -> Iterator[PartFiles]:
        """What one file becomes: appears as a whole when the block ends, nothing of it if that raises."""
        parts = PartFiles(self._fs, self._root, name)
        try:
            yield parts
            parts.commit()
        except BaseException:
            parts.abort()
            raise

    @contextmanager
    def _file(self, name: str) -> Iterator[IO[bytes]]:
        path, hidden = f"{self._root}/{name}", _hidden(f"{self._root}/{name}")
        with self._fs.open(hidden, "wb") as file:
            yield file
        self._fs.mv(hidden, path)


class PartFiles:
    """Parquet files, one a directory, and the bad lines; under hidden names until commit()."""

    def __init__(self, fs: fsspec.AbstractFileSystem, root: str, name: str) -> None:
        self.names: list[str] = []
        self._fs = fs
        self._root = root
        self._name = name
        self._files: dict[str, IO[bytes]] = {}
        self._writers: dict[str, pq.ParquetWriter] = {}

    def write(self, directory: str, table: pa.Table) -> None:
        """Append rows to the part in this directory."""
        name = f"{directory}/{self._name}.parquet"
        if name not in self._writers:
            self._writers[name] = parquet_writer(self._open(name))
            self.names.append(name)
        write(table, self._writers[name])

    def set_aside(self, source: str, bad: Bad) -> None:
        """Keep a bad line, with the reason."""
        name = f"{QUARANTINE}/{self._name}.jsonl"
        raw: dict[str, Any] = {"source": source, "line": bad.number, "reason": bad.reason, "bytes": len(bad.raw)}
        raw["raw"] = bad.raw[:SHOWN].decode(errors="backslashreplace")
        file = self._files.get(name) or self._open(name)
        file.write(msgspec.json.encode(raw) + b"\n")

    def _open(self, name: str) -> IO[bytes]:
        path = f"{self._root}/{name}"
        self._fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        file: IO[bytes] = self._fs.open(_hidden(path), "wb")
        self._files[name] = file
        return file

    def commit(self) -> None:
        """Show all of it."""
        for writer in self._writers.values():
            writer.close()
        for file in self._files.values():
            file.close()
        for name in self._files:
            path = f"{self._root}/{name}"
            self._fs.mv(_hidden(path), path)

    def abort(self) -> None:
        """Leave nothing."""
        for name, file in self._files.items():
            with suppress(OSError, pa.ArrowException):
                file.close()
                self._fs.rm(_hidden(f"{self._root}/{name}"))


def _hidden(path: str) -> str:
    """A name that readers of the directory pass over."""
    parent, _, name = path.rpartition("/")
    return f"{parent}/.{name}.part"
