"""What we use of kazoo's private parts is looked at before the first connection, and a kazoo that lacks it is named."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.version import __version__ as kazoo_version

import zkms
from zkms.server.server import Server
from zkms.zookeeper import kazoo_client


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not connected yet."""
    monkeypatch.setattr(kazoo_client, "_checked", False)


def refusal() -> str:
    """What connect() says, before it connects anywhere."""
    with pytest.raises(zkms.ZkmsError) as failure:
        zkms.connect("127.0.0.1:1", connect_timeout=0.1)
    assert not isinstance(failure.value, zkms.StoreError)
    return str(failure.value)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((ConnectionHandler, name) for name in ("_connect", "_read", "_write", "zk_loop")),
        *((SequentialThreadingHandler, name) for name in ("select", "create_connection", "spawn")),
    ],
)
def test_a_method_that_is_missing_is_named(kind: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the version that was found, and the one that was tried."""
    monkeypatch.delattr(kind, name)
    said = refusal()
    assert said.startswith(f"zkms does not fit kazoo {kazoo_version}, whose {kind.__name__} has no {name}():")
    assert said.endswith(f"kazoo {kazoo_client.TRIED}")
    assert "\n" not in said


def test_a_method_that_takes_something_else_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """We replace it, and would be called in another way than we know."""
    monkeypatch.setattr(ConnectionHandler, "_read", lambda self, size: None)
    assert "ConnectionHandler._read() takes (self, size) and not (self, length, timeout)" in refusal()


@pytest.mark.parametrize("name", ["_socket", "_xid", "ping_outstanding"])
def test_an_attribute_of_a_connection_that_is_missing_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are there only in an instance."""
    make = ConnectionHandler.__init__

    def without(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        delattr(self, name)

    monkeypatch.setattr(ConnectionHandler, "__init__", without)
    assert f"ConnectionHandler has no {name}:" in refusal()


def test_an_attribute_of_the_client_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """By which a reply to kazoo is told from one to us."""
    make = KazooClient.__init__

    def without(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        del self._pending

    monkeypatch.setattr(KazooClient, "__init__", without)
    assert "KazooClient has no _pending:" in refusal()


def test_a_kazoo_that_fits_is_looked_at_once(zookeeper: Server, zookeeper_root: str, monkeypatch: Any) -> None:
    """Later connections of the process pay nothing for it."""
    looks: list[KazooClient] = []
    look = kazoo_client._misfits
    monkeypatch.setattr(kazoo_client, "_misfits", lambda client: looks.append(client) or look(client))
    for _ in range(2):
        zkms.connect(zookeeper.hosts, root=zookeeper_root, cleaner=False).close()
    assert len(looks) == 1
