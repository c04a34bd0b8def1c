"""The pytest plugin: a real ZooKeeper and a bus on it for anyone's tests.

    zookeeper            one server for the whole run
    zookeeper_ensemble   three servers for the whole run, all healthy at the start of each test
    zookeeper_root       a path of the test's own, deleted afterwards
    bus                  connected to `zookeeper` under that root

`--zookeeper=embedded|container|both` chooses where the servers run; ZKMS_TEST_ZOOKEEPER sets the default.
pytest loads this in every run of everyone who has zkms installed, so it imports nothing before a test needs it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from zkms.bus import Bus
    from zkms.server.server import Server

_KINDS = {"embedded": ["embedded"], "container": ["container"], "both": ["embedded", "container"]}
_VARIABLE = "ZKMS_TEST_ZOOKEEPER"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--zookeeper`."""
    parser.getgroup("zkms").addoption(
        "--zookeeper",
        choices=list(_KINDS),
        default=os.environ.get(_VARIABLE, "embedded"),
        help=f"where zkms's fixtures run ZooKeeper (default: ${_VARIABLE} or embedded)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and refuse a default from the environment that is no choice."""
    config.addinivalue_line("markers", "containers: needs Docker; skipped where it does not answer, never under CI")
    chosen = config.getoption("--zookeeper")
    if chosen not in _KINDS:
        raise pytest.UsageError(f"{_VARIABLE}={chosen}: choose from {', '.join(_KINDS)}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses a ZooKeeper once per kind, where containers are among them."""
    kinds = _KINDS[metafunc.config.getoption("--zookeeper")]
    if "zookeeper_kind" in metafunc.fixturenames and "container" in kinds:
        marks = {"container": [pytest.mark.containers]}
        params = [pytest.param(kind, id=kind, marks=marks.get(kind, [])) for kind in kinds]
        metafunc.parametrize("zookeeper_kind", params, indirect=True, scope="session")


@pytest.fixture(scope="session")
def zookeeper_kind(request: pytest.FixtureRequest) -> str:
    """Where this test's ZooKeeper runs: "embedded" or "container"."""
    return str(getattr(request, "param", "embedded"))


@pytest.fixture(scope="session")
def docker_needed() -> None:
    """Skip the test with the reason where Docker does not answer; under CI=true that is a failure."""
    from zkms.testing.daemon import docker_answers

    if reason := docker_answers():
        if os.environ.get("CI") == "true":
            pytest.fail(f"container tests may not be skipped under CI: {reason}", pytrace=False)
        pytest.skip(reason)


def _server(request: pytest.FixtureRequest, kind: str, nodes: int) -> Server:
    if kind == "container":
        request.getfixturevalue("docker_needed")
        from zkms.testing.container import ZooKeeperContainer

        return ZooKeeperContainer(nodes).start()
    from zkms.server.embedded import EmbeddedZooKeeper

    return EmbeddedZooKeeper(nodes).start()


@pytest.fixture(scope="session")
def zookeeper(request: pytest.FixtureRequest, zookeeper_kind: str) -> Iterator[Server]:
    """One ZooKeeper server for the whole run: `zookeeper.hosts` is where clients connect."""
    server = _server(request, zookeeper_kind, nodes=1)
    yield server
    server.close()


@pytest.fixture(scope="session")
def _zookeeper_ensemble(request: pytest.FixtureRequest, zookeeper_kind: str) -> Iterator[Server]:
    server = _server(request, zookeeper_kind, nodes=3)
    yield server
    server.close()


@pytest.fixture
def zookeeper_ensemble(_zookeeper_ensemble: Server) -> Server:
    """Three servers, all of them healthy now, whatever an earlier test did to them."""
    _zookeeper_ensemble.heal()
    return _zookeeper_ensemble


@pytest.fixture
def zookeeper_root(
    request: pytest.FixtureRequest,
    zookeeper_kind: str,  # noqa: ARG001 -- seen by pytest: what is requested below runs once per kind
) -> Iterator[str]:
    """A path that no other test uses; what is under it is deleted afterwards, in the ensemble if the test uses that."""
    from zkms.testing.roots import delete_root, new_root

    name = "zookeeper_ensemble" if "zookeeper_ensemble" in request.fixturenames else "zookeeper"
    server: Server = request.getfixturevalue(name)
    root = new_root()
    yield root
    server.heal()  # a test may leave its faults behind
    delete_root(server.hosts, root)


@pytest.fixture
def bus(zookeeper: Server, zookeeper_root: str) -> Iterator[Bus]:
    """A bus on `zookeeper` under a root of the test's own, closed afterwards."""
    import zkms

    with zkms.connect(zookeeper.hosts, root=zookeeper_root) as connected:
        yield connected
