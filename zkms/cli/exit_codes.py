"""What the exit codes of `zkms` mean: this table is the documentation, and the only place that knows the numbers."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """How a command ended."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NO_ZOOKEEPER = 3
    NOT_IN_TIME = 4
    NOBODY = 5
    NO_TRAIL = 6
    AMISS = 7
    NO_SPARK = 8
    IN_USE = 9
    INTERRUPTED = 130


MEANING = {
    Exit.OK: "done",
    Exit.ERROR: "an error, said in one sentence; for doctor: a problem was found",
    Exit.USAGE: "wrong usage: an unknown option, a bad topic name",
    Exit.NO_ZOOKEEPER: "no ZooKeeper answers",
    Exit.NOT_IN_TIME: "not in time: nothing or too little received, or not acked by all",
    Exit.NOBODY: "nobody subscribes to the topic",
    Exit.NO_TRAIL: "no trail: the directory is missing, or empty",
    Exit.AMISS: "done, but part is bad, doubtful or left out, or (--strict) not all kept",
    Exit.NO_SPARK: "no Spark: no Java, or a master that does not answer",
    Exit.IN_USE: "somebody else reads this durable subscription",
    Exit.INTERRUPTED: "interrupted, by Ctrl-C or SIGTERM",
}
