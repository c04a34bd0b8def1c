"""The same analysis on a cluster: a master and two workers on this machine, and a job that comes as a zip."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from zkms_spark.javahome import make_java_home

from zkms.testing.ports import free_ports
from zkms.trail.generate import Generator
from zkms.trail.planting import parse_faults

pytestmark = pytest.mark.timeout(1200)
LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Five Javas that live for a minute: compiling well would take them longer than the work."""
PROJECT = Path(__file__).parents[2]


@dataclass
class Cluster:
    """Where the master is, and what a client's environment has to say."""

    master: str
    environ: dict[str, str]
    binaries: Path


@pytest.fixture
def cluster(tmp_path: Path, eventually: Callable[..., None]) -> Iterator[Cluster]:
    """Spark's own classes, on loopback, with little memory."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    binaries = Path(spec.origin).parent / "bin"
    home = make_java_home(tmp_path, tmp_path / "java.log")
    environ = os.environ | {
        "JAVA_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": LIGHT,
        "SPARK_LOCAL_DIRS": str(tmp_path / "local"),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    port, page = free_ports(2)
    master = f"spark://127.0.0.1:{port}"
    package = "org.apache.spark.deploy"
    commands = [[f"{package}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)]]
    for number in (1, 2):
        directory = tmp_path / f"worker-{number}"
        worker = [f"{package}.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "600m"]
        commands.append([*worker, "--webui-port", "0", "--work-dir", str(directory), master])
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            process = subprocess.Popen([binaries / "spark-class", *command], env=environ, **quiet)
            processes.append(process)
        eventually(lambda: workers(page) == 2, timeout=300, what="two workers")
        yield Cluster(master, environ, binaries)
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


def test_a_packaged_job_runs_on_a_master_with_two_workers(cluster: Cluster, tmp_path: Path) -> None:
    """spark-submit with the zip alone, as on a cluster where zkms is not installed; the planted violation is found."""
    trail, page, archive = tmp_path / "trail", tmp_path / "report.html", tmp_path / "zkms_spark.zip"
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
        [*submit, PROJECT / "spark" / "submit.py", "--trail", trail.as_uri(), "--out", page],
        env=bare,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1000,
    )
    assert done.returncode == 0, done.stdout + done.stderr + (tmp_path / "java.log").read_text()[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["executors"] == 2
    assert said["violations"]["missed"] == 1
    assert "plot-throughput" in page.read_text(encoding="utf-8")
