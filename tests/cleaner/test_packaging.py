"""What runs the cleaner elsewhere: the image is built and run, unit and manifest are checked against the command."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from zkms_cleaner.daemon import main

import zkms
from tests.cleaner.orphanage import make_orphan
from zkms.server.ports import free_ports
from zkms.testing import EmbeddedZooKeeper

HERE = Path(__file__).parents[2] / "cleaner"
PROJECT = HERE.parent
OPTIONS = {option for parameter in main.params for option in parameter.opts}
VARIABLES = {str(parameter.envvar) for parameter in main.params if parameter.envvar} | {"ZKMS_AUTH", "ZKMS_AUTH_FILE"}


# -- systemd -----------------------------------------------------------------------------------------------------------


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """No setting is misspelled."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed here")
    unit = shutil.copy(HERE / "zkms-cleaner.service", tmp_path)
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_is_of_the_kind_that_the_daemon_notifies() -> None:
    """Type, watchdog, environment file, and an end that leaves time to give up the lead."""
    lines = (HERE / "zkms-cleaner.service").read_text().splitlines()
    for line in ("Type=notify", "WatchdogSec=60", "EnvironmentFile=-/etc/zkms/cleaner.env", "DynamicUser=yes"):
        assert line in lines
    assert "ExecStart=/usr/bin/env zkms-cleaner" in lines


# -- Kubernetes --------------------------------------------------------------------------------------------------------


def test_the_manifest_has_two_replicas_probes_a_secret_and_a_budget() -> None:
    """Read line by line: a YAML library would be a dependency for this test alone."""
    text = (HERE / "kubernetes.yaml").read_text()
    assert "\t" not in text
    assert re.findall(r"^kind: (\w+)$", text, re.MULTILINE) == ["Secret", "Deployment", "PodDisruptionBudget"]
    for line in ("replicas: 2", "path: /healthz", "path: /readyz", "minAvailable: 1", "runAsNonRoot: true"):
        assert re.search(rf"^ +{line}$", text, re.MULTILINE), line
    for line in text.splitlines():
        assert (len(line) - len(line.lstrip(" "))) % 2 == 0, line


@pytest.mark.parametrize("name", ["kubernetes.yaml", "Dockerfile", "README.md", "zkms-cleaner.service"])
def test_options_and_variables_that_the_files_use_exist(name: str) -> None:
    """A renamed option is noticed here, not in somebody's cluster."""
    text = (HERE / name).read_text()
    commands = re.findall(r"^zkms-cleaner (.*?)(?:#.*)?$|args: \[(.*)\]", text, re.MULTILINE)
    for option in re.findall(r"--[a-z-]+", " ".join(map(" ".join, commands))):
        assert option in OPTIONS
    for variable in re.findall(r"ZKMS_(?!TLS)[A-Z_]+[A-Z]", text):
        assert variable in VARIABLES


# -- the image ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def docker(docker_needed: None) -> Iterator[Any]:
    """A client of the Docker daemon."""
    from zkms.testing.daemon import connect

    client = connect()
    yield client
    client.close()


@pytest.fixture(scope="module")
def base(docker: Any) -> Iterator[str]:
    """An image with the Python that runs this test and a shell: the Dockerfile's BASE where none can be pulled."""
    tag = f"test-{os.getpid()}"
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        python = Path(os.path.realpath(sys._base_executable))  # type: ignore[attr-defined]
        with tarfile.open(fileobj=file, mode="w", dereference=True) as tar:
            _add_python(tar, python)
        file.flush()
        changes = [f"ENV PATH={python.parent}:/usr/bin:/bin"]
        docker.api.import_image_from_file(file.name, repository="zkms-python", tag=tag, changes=changes)
    yield f"zkms-python:{tag}"
    docker.images.remove(f"zkms-python:{tag}", force=True)


def _add_python(tar: tarfile.TarFile, python: Path) -> None:
    library = Path(sysconfig.get_path("stdlib"))
    unwanted = {"site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "lib2to3", "__pycache__"}

    def wanted(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        info.uid = info.gid = 0
        return None if unwanted & set(Path(info.name).parts) else info

    shell = Path("/bin/sh")
    tar.add(python, str(python))
    tar.add(library, str(library), filter=wanted)
    if wheels := sysconfig.get_config_var("WHEEL_PKG_DIR"):  # a distribution may keep ensurepip's there
        tar.add(wheels, wheels)
    tar.add(shell.resolve(), str(shell))
    for name in ("python3", "python"):
        link = tarfile.TarInfo(str(python.with_name(name)))
        link.type, link.linkname = tarfile.SYMTYPE, python.name
        if name != python.name:
            tar.addfile(link)
    temporary = tarfile.TarInfo("tmp")
    temporary.type, temporary.mode = tarfile.DIRTYPE, 0o1777
    tar.addfile(temporary)
    found: set[str] = set()
    for binary in (python, shell, *library.glob("lib-dynload/*.so")):
        done = subprocess.run(["ldd", binary], capture_output=True, text=True, check=True)
        found.update(re.findall(r"(?:=> |^\s*)(/\S+) \(0x", done.stdout, re.MULTILINE))
    # Wheels count on these being there: parts of glibc that newer ones have moved into libc itself.
    libc = next(Path(path) for path in found if Path(path).name.startswith("libc.so"))
    beside = [libc.with_name(name) for name in ("libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1")]
    for path in sorted(found | {str(path) for path in beside if path.exists()}):
        tar.add(path, path)


@pytest.fixture(scope="module")
def image(docker: Any, base: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The real Dockerfile, built from this checkout with wheels made here: nothing is fetched during the build."""
    wheels = tmp_path_factory.mktemp("wheelhouse")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--wheel-dir", str(wheels)]
    subprocess.run([*pip, f"{PROJECT}[cleaner]"], check=True, timeout=240)
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        for name in ("pyproject.toml", "README.md", "LICENSE", "zkms", "cleaner"):
            tar.add(PROJECT / name, name)
        tar.add(wheels, "wheelhouse")
    context.seek(0)
    tag = f"zkms-cleaner:test-{os.getpid()}"
    docker.images.build(
        fileobj=context,
        custom_context=True,
        dockerfile="cleaner/Dockerfile",
        buildargs={"BASE": base},
        network_mode="none",
        tag=tag,
        rm=True,
        forcerm=True,
    )
    yield tag
    docker.images.remove(tag, force=True)
    docker.images.prune(filters={"dangling": True, "label": "stage=zkms-cleaner-build"})


@pytest.mark.containers
def test_the_image_purges_an_orphan_answers_its_probes_and_stops_cleanly(
    docker: Any, image: str, eventually: Callable[..., None]
) -> None:
    """Built without a registry and run as nobody with a read-only file system, as the manifest does."""
    port = free_ports(1)[0]
    with EmbeddedZooKeeper() as zookeeper, zkms.connect(zookeeper.hosts, cleaner=False) as observer:
        queue = make_orphan(observer, entries=12)
        container = docker.containers.run(
            image,
            ["--interval", "0.5", "--grace", "0.5"],
            detach=True,
            network_mode="host",
            read_only=True,
            cap_drop=["ALL"],
            environment={"ZKMS_HOSTS": zookeeper.hosts, "ZKMS_CLEANER_METRICS_PORT": str(port)},
        )
        try:
            eventually(
                lambda: observer.parts.session.exists(queue) is None or _ended(container), timeout=60, what="the purge"
            )
            assert _get(port, "/healthz") == 200
            assert _get(port, "/readyz") == 200
            assert f"purged queue {queue} (12 entries)" in container.logs().decode()
            eventually(lambda: _health(container) == "healthy", timeout=60, what="Docker's own health check")
            assert container.exec_run(["python3", "-c", "import os; print(os.getuid())"]).output == b"65532\n"
            began = time.monotonic()
            container.stop(timeout=15)
            assert time.monotonic() - began < 10
            assert container.wait()["StatusCode"] == 0
            assert observer.parts.session.children(observer.parts.tree.cleaner)[0] == []
        finally:
            container.remove(force=True)


def _ended(container: Any) -> None:
    """Fail with its log if the container has ended by itself."""
    container.reload()
    assert container.status in ("created", "running"), container.logs().decode()


def _health(container: Any) -> str:
    container.reload()
    return str(container.attrs["State"]["Health"]["Status"])


def _get(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_no_file_names_a_place_of_the_machine_it_was_written_on() -> None:
    """Paths are those of the target systems, hosts are examples."""
    for file in (HERE / "Dockerfile", HERE / "kubernetes.yaml", HERE / "zkms-cleaner.service", HERE / "README.md"):
        assert not re.search(r"/(root|home|work)/", file.read_text())
