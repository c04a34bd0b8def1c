"""Spark for one analysis: started with bounded memory, ended with everything it put on disk.

`local[*]` needs nothing but this Python. A cluster's master is looked at before Spark is asked to connect, because
Spark itself would try for a minute and then say little; and a cluster without a free worker is an error, not a wait
for ever. Under `spark-submit` the session that it made is used as it is.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zkms_spark import gateway
from zkms_spark.errors import NoSpark
from zkms_spark.javahome import make_java_home

LOCAL = "local[*]"
DRIVER_MEMORY = "2g"
EXECUTOR_MEMORY = "1g"
WAIT_FOR_WORKERS = 60.0
WAIT_FOR_MASTER = 5.0

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    # Much is sorted in pieces that fit into memory; of little, Spark puts the pieces together again.
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "64",
    "spark.sql.parquet.compression.codec": "zstd",
    # Ranges of one producer pile up in few groups; small files are read several to a task.
    "spark.sql.files.maxPartitionBytes": str(32 << 20),
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
}


SMALL_BYTES = 16 << 20
"""Of Parquet: so little that what is compiled, planned or split costs more than it gains."""
_SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
}
_SMALL_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Java's second compiler takes half of the CPU otherwise, most of it for code of Spark's that is not about rows: thirty
# times as much has to go through a method before it is worth that. This collector also leaves it less to compile.
_JAVA = (
    "-XX:+UseParallelGC -XX:Tier4InvocationThreshold=150000 -XX:Tier4MinInvocationThreshold=20000 "
    "-XX:Tier4CompileThreshold=450000 -XX:Tier4BackEdgeThreshold=1200000"
)


@contextmanager
def open_session(
    master: str = LOCAL, settings: Mapping[str, str] | None = None, *, small: bool = False
) -> Iterator[Any]:
    """A SparkSession for a block; afterwards its processes and temporary files are gone.

    `settings` are Spark's, and win over ours. `small` is for a trail of less than `SMALL_BYTES`.
    """
    _check(master)
    given = (_SMALL if small else {}) | dict(settings or {})
    with tempfile.TemporaryDirectory(prefix="zkms-spark-") as name:
        directory = Path(name)
        log = directory / "java.log"
        java_home, address = str(make_java_home(directory, log)), _own_address(master)
        with _environment(JAVA_HOME=java_home, SPARK_LOCAL_IP=address, **_own_python(master)):
            spark = _start(master, directory, log, given, _SMALL_JAVA if small else _JAVA)
            try:
                if not _is_local(master):
                    _await_workers(spark, master)
                yield spark
            finally:
                gateway.stop(spark)


def attach() -> Any:
    """The session of the `spark-submit` that runs us."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("zkms")
    for key in ("spark.sql.session.timeZone", "spark.sql.files.maxPartitionBytes"):
        builder = builder.config(key, _SETTINGS[key])
    return builder.getOrCreate()


def _start(master: str, directory: Path, log: Path, given: dict[str, str], java: str) -> Any:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    cores = os.cpu_count() or 2
    settings = _SETTINGS | {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.executor.memory": EXECUTOR_MEMORY,
        "spark.sql.shuffle.partitions": str(max(4, 2 * cores)),
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.driver.extraJavaOptions": f"{java} -Dderby.system.home={directory} -Djava.io.tmpdir={directory}",
    }
    builder = SparkSession.builder.master(master).appName("zkms")
    for key, value in (settings | given).items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:  # py4j and pyspark raise many kinds, all of them mean the same to us
        raise NoSpark(f"Spark did not start on {master}: {_reason(error, log, PySparkException)}") from error
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _reason(error: Exception, log: Path, kind: type[Exception]) -> str:
    """The line that says most, of what Java or Spark have said."""
    said = log.read_text(errors="replace").splitlines() if log.exists() else []
    telling = [line.strip() for line in said if re.search(r"Exception|Error|error|unresponsive|No such", line)]
    if telling:
        return telling[0][:300]
    return (str(error) if isinstance(error, kind) else str(error).splitlines()[0])[:300]


@contextmanager
def _environment(**variables: str | None) -> Iterator[None]:
    """Variables that Spark's launcher reads, for a block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update({name: value for name, value in variables.items() if value is not None})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# -- masters ---------------------------------------------------------------------------------------------------------


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _own_address(master: str) -> str | None:
    """Nobody else has to reach a local Spark."""
    return "127.0.0.1" if _is_local(master) and "SPARK_LOCAL_IP" not in os.environ else None


def _own_python(master: str) -> dict[str, str | None]:
    """What runs Spark's Python on this machine: this one, which has our packages, unless somebody says otherwise."""
    names = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    wanted = _is_local(master) and not any(name in os.environ for name in names)
    return dict.fromkeys(names, sys.executable if wanted else None)


def _check(master: str) -> None:
    """Say at once what Spark would take a minute to find out."""
    if not re.fullmatch(r"local(-cluster)?(\[[^\]]+\])?|spark://[^,]+:\d+(,[^,]+:\d+)*|k8s://.+|yarn", master):
        raise NoSpark(f"{master!r} is no Spark master: give local[*], spark://HOST:PORT, k8s://URL or yarn")
    if not master.startswith("spark://"):
        return
    refusals = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=WAIT_FOR_MASTER).close()
        except OSError as error:
            refusals.append(f"{place}: {error.strerror or error}")
        else:
            return
    raise NoSpark(f"no Spark master answers at {master} ({'; '.join(refusals)}): is it running, is the port right?")


def _await_workers(spark: Any, master: str) -> None:
    """Until one executor is there; Spark's own jobs would wait without end."""
    deadline = time.monotonic() + WAIT_FOR_WORKERS
    while not gateway.executors(spark):
        if time.monotonic() > deadline:
            raise NoSpark(f"{master} has no worker with {EXECUTOR_MEMORY} of memory to spare: start one, or free one")
        time.sleep(0.2)
