"""Standard input as lines: those that are there now at once, so that a slow stream is not held back by buffering."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from zkms.cli.failure import Failure
from zkms.zookeeper.operations import MAX_TRANSACTION

READ = 256 * 1024


def read_lines() -> Iterator[list[str]]:
    """Lists of lines without their ends, as they arrive; the last one needs no newline."""
    number = 0
    for raw in _raw_lines(sys.stdin.fileno()):
        lines = []
        for line in raw:
            number += 1
            try:
                lines.append(line.decode())
            except UnicodeDecodeError as error:
                raise Failure(f"line {number} of standard input is not UTF-8") from error
        yield lines


def _raw_lines(descriptor: int) -> Iterator[list[bytes]]:
    rest = b""
    while part := os.read(descriptor, READ):
        *lines, rest = (rest + part).split(b"\n")
        if lines:
            yield lines
        if len(rest) > MAX_TRANSACTION:
            raise Failure(f"a line of more than {MAX_TRANSACTION:,} bytes on standard input is too large for a message")
    if rest:
        yield [rest]
