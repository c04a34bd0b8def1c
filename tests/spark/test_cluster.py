"""The same code on a cluster: a master and two workers on this machine, shared by this file's tests.

The analysis as a job that comes as a zip and as a command, the live job, and the data source both ways.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from zkms_spark.javahome import make_java_home
from zkms_spark.jobs import JOBS
from zkms_spark.session import EXECUTOR_MEMORY, open_session
from zkms_spark.source import ZkmsDataSource

from zkms import Bus
from zkms.cli.exit_codes import Exit
from zkms.server.ports import free_ports
from zkms.server.server import Server
from zkms.trail.generate.generate import PLANTED, Generator
from zkms.trail.generate.planting import parse_faults

pytestmark = pytest.mark.timeout(1200)
LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Five Javas that live for a minute: compiling well would take them longer than the work."""
PROJECT = Path(__file__).parents[2]
ROWS = 1_000


@dataclass
class Cluster:
    """Where the master is, and what a client's environment has to say."""

    master: str
    environ: dict[str, str]
    binaries: Path
    log: Path
    """What the packaged job's Java says."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Spark's own classes, on loopback; a worker has the memory that an executor of ours asks for."""
    directory = tmp_path_factory.mktemp("cluster")
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    binaries = Path(spec.origin).parent / "bin"
    home = make_java_home(directory, directory / "java.log")
    environ = os.environ | {
        "JAVA_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": LIGHT,
        "SPARK_LOCAL_DIRS": str(directory / "local"),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    port, page = free_ports(2)
    master = f"spark://127.0.0.1:{port}"
    package = "org.apache.spark.deploy"
    commands = [[f"{package}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)]]
    for number in (1, 2):
        worker = [f"{package}.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", EXECUTOR_MEMORY]
        commands.append([*worker, "--webui-port", "0", "--work-dir", str(directory / f"worker-{number}"), master])
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            process = subprocess.Popen([binaries / "spark-class", *command], env=environ, **quiet)
            processes.append(process)
        deadline = time.monotonic() + 300
        while workers(page) < 2:
            assert time.monotonic() < deadline, "two workers did not come within five minutes"
            time.sleep(0.1)
        yield Cluster(master, environ, binaries, directory / "java.log")
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(timeout=60)


def workers(page: int) -> int:
    """How many the master has, by its own account."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=10) as answer:
            return int(json.load(answer)["aliveworkers"])
    except OSError:
        return 0


def zkms(cluster: Cluster, directory: Path, *args: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command on the cluster."""
    inherited = {name: value for name, value in cluster.environ.items() if not name.startswith("ZKMS_")}
    command = [sys.executable, "-m", "zkms", *args, "--master", cluster.master]
    return subprocess.run(command, cwd=directory, env=inherited, capture_output=True, text=True, timeout=1000)


def test_a_packaged_job_runs_on_a_master_with_two_workers(cluster: Cluster, tmp_path: Path) -> None:
    """spark-submit with the zip alone, as on a cluster where zkms is not installed; the planted violation is found.

    The jobs' tables are written by the workers.
    """
    trail, page, archive = tmp_path / "trail", tmp_path / "report.html", tmp_path / "zkms_spark.zip"
    tables = tmp_path / "tables"
    Generator(2_000, trail, faults=parse_faults("missed=1"), parquet=True).run()
    subprocess.run([sys.executable, PROJECT / "spark" / "package.py", archive], check=True, timeout=120)
    bare = {name: value for name, value in cluster.environ.items() if name != "PYTHONPATH"}
    settings = {
        "spark.executor.memory": "500m",
        "spark.driver.memory": "600m",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.extraJavaOptions": LIGHT,
        "spark.executor.extraJavaOptions": LIGHT,
        "spark.ui.enabled": "false",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "240s",
        "spark.cores.max": "2",
        "spark.driver.host": "127.0.0.1",
    }
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    submit = [cluster.binaries / "spark-submit", "--master", cluster.master, *options, "--py-files", archive]
    done = subprocess.run(
        [
            *submit,
            PROJECT / "spark" / "submit.py",
            "--trail",
            trail.as_uri(),
            "--out",
            page,
            "--tables",
            tables.as_uri(),
        ],
        env=bare,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1000,
    )
    assert done.returncode == 0, done.stdout + done.stderr + cluster.log.read_text()[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["executors"] == 2
    assert said["violations"]["missed"] == 1
    assert "plot-throughput" in page.read_text(encoding="utf-8")
    assert set(said["tables"]) == set(JOBS) == {path.name for path in tables.iterdir()}
    findings = pq.read_table(tables / "findings").to_pylist()
    assert [row["violation"] for row in findings if row["verdict"] == "violation"] == ["missed"]


def test_the_report_and_the_live_job_run_on_a_master(cluster: Cluster, tmp_path: Path) -> None:
    """The commands with --master: the same verdict and the same figures as on one machine."""
    Generator(2_000, tmp_path / "trail", faults=parse_faults("missed=1"), parquet=True).run()
    planted = json.loads((tmp_path / "trail" / PLANTED).read_text())
    done = zkms(cluster, tmp_path, "report", "--trail", "trail", "--out", "page.html", "--json")
    assert done.returncode == Exit.OK, done.stderr
    figures = json.loads(done.stdout)
    assert figures["events"] == planted["events"]
    broken = {each["violation"]: each["violations"] for each in figures["guarantees"] if each["status"] == "broken"}
    assert broken == {"missed": 1}
    assert "plot-throughput" in (tmp_path / "page.html").read_text(encoding="utf-8")
    live = ["trail", "follow", "--trail", "trail", "--state", "live", "--once", "--audit-every", "0", "--json"]
    done = zkms(cluster, tmp_path, *live)
    assert done.returncode == Exit.OK, done.stderr
    windows = [told for told in map(json.loads, done.stdout.splitlines()) if "published" in told]  # others are alerts
    assert sum(told["published"] for told in windows) == figures["messages"]
    topics = figures["topics"]
    assert sum(told["delivered"] for told in windows) == sum(topic["delivered"] for topic in topics)


def test_rows_become_messages_and_messages_rows_on_a_master(
    cluster: Cluster, zookeeper: Server, zookeeper_root: str, bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written by the workers of a batch, each row is once on the topic; read by those of a stream, once in files."""
    for name, value in cluster.environ.items():
        monkeypatch.setenv(name, value)
    bus.subscribe("users", name="etl").close()
    users = bus.subscribe("users", limit=2 * ROWS)
    options = {"hosts": zookeeper.hosts, "root": zookeeper_root, "topic": "users"}
    given = {"spark.driver.memory": "600m", "spark.driver.host": "127.0.0.1", "spark.executor.extraJavaOptions": LIGHT}
    with open_session(cluster.master, given, small=True) as spark:
        spark.dataSource.register(ZkmsDataSource)
        rows = spark.range(ROWS, numPartitions=2)
        rows.write.format("zkms").options(**options).mode("append").save()
        assert sorted(received(users)) == list(range(ROWS))
        stream = spark.readStream.format("zkms").options(**options, name="etl", partitions="2").load().writeStream
        stream = stream.format("parquet").option("checkpointLocation", (tmp_path / "checkpoint").as_uri())
        query = stream.trigger(availableNow=True).start((tmp_path / "out").as_uri())
        try:
            assert query.awaitTermination(900)
        finally:
            query.stop()
        read = spark.read.parquet((tmp_path / "out").as_uri()).selectExpr("get_json_object(data, '$.id') id").collect()
    assert sorted(int(row.id) for row in read) == list(range(ROWS))


def received(subscription: Any) -> list[int]:
    """The numbers on the topic, and what comes right behind them."""
    found: list[int] = []
    deadline = time.monotonic() + 120
    while len(found) < ROWS and time.monotonic() < deadline:
        found += [each.data["id"] for each in subscription.fetch(ROWS, timeout=1.0)]
    return found + [each.data["id"] for each in subscription.fetch(ROWS, timeout=0.5)]
