"""kazoo's client as a session needs it. All that we use of kazoo's private parts is here, and nowhere else.

kazoo makes the connection, shows the credentials, pings and ends the session. Our own code (connection.py) sends and
receives everything else over the same socket, because kazoo needs a thread for each connection and wakes it for every
request. kazoo has no public interface for that, so we replace or read these parts of it:

- `ConnectionHandler._connect`: to know when the credentials are accepted, and to say how new a server has to be;
- `ConnectionHandler._read` and `_write`: what kazoo reads may have arrived together with replies to us, and what it
  writes must not go into the middle of a request of ours;
- `ConnectionHandler._xid` and `KazooClient._pending`: requests are numbered in one row, and a reply to nothing that
  we asked is kazoo's if it waits for one;
- `ConnectionHandler._socket` and `ping_outstanding`: where to read, and that the server is alive;
- the handler's `select`, `spawn` and `create_connection`, and the name of the function that is the connection's thread.

Each version of kazoo may change them, so `check_kazoo` looks at them before the first connection of a process.
"""

from __future__ import annotations

import inspect
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.retry import KazooRetry
from kazoo.version import __version__ as kazoo_version

from zkms.config import Config
from zkms.errors import ZkmsError

log = logging.getLogger("zkms.zookeeper")
_kazoo_log = logging.getLogger("zkms.kazoo")
_kazoo_log.setLevel(logging.WARNING)  # at DEBUG kazoo prints credentials and payloads


def _without_contents(record: logging.LogRecord) -> bool:
    """Reduce a request whose reply kazoo cannot read, and quotes, to its type: it may hold secrets."""
    if "of request" in str(record.msg) and isinstance(record.args, tuple):
        record.args = tuple(type(arg).__name__ for arg in record.args)
    return True


_kazoo_log.addFilter(_without_contents)

GOODBYE = 2.0
"""Seconds that a server has to answer the end of a session."""
TRIED = "2.11"
"""The versions of kazoo that all tests have passed with."""
_METHODS: tuple[tuple[type, str, tuple[str, ...]], ...] = (
    (ConnectionHandler, "_connect", ("self", "host", "hostip", "port")),
    (ConnectionHandler, "_read", ("self", "length", "timeout")),
    (ConnectionHandler, "_write", ("self", "msg", "timeout")),
    (ConnectionHandler, "zk_loop", ("self",)),
    (SequentialThreadingHandler, "select", ("self", "args", "kwargs")),
    (SequentialThreadingHandler, "create_connection", ("self", "args", "kwargs")),
    (SequentialThreadingHandler, "spawn", ("self", "func", "args", "kwargs")),
)
_CLIENT_ATTRIBUTES = ("_connection", "_pending", "chroot", "client_id", "client_state", "connected", "last_zxid")
_CONNECTION_ATTRIBUTES = ("_socket", "_xid", "handler", "ping_outstanding")
_checked = False


def check_kazoo(client: KazooClient) -> None:
    """Raise `ZkmsError` if the installed kazoo lacks a part that we use, or has it with other parameters.

    `client` is one that is not started. The check is made once in each process.
    """
    global _checked
    if _checked:
        return
    misfit = next(_misfits(client), None)
    if misfit is not None:
        raise ZkmsError(
            f"zkms does not fit kazoo {kazoo_version}, whose {misfit}: "
            f"install a version that it was tried with, kazoo {TRIED}"
        )
    _checked = True


def _misfits(client: KazooClient) -> Iterator[str]:
    """Yield what is not as we know it, in words that follow the name of the version."""
    for kind, name, expected in _METHODS:
        method = getattr(kind, name, None)
        if method is None:
            yield f"{kind.__name__} has no {name}()"
        elif (found := tuple(inspect.signature(method).parameters)) != expected:
            yield f"{kind.__name__}.{name}() takes ({', '.join(found)}) and not ({', '.join(expected)})"
    for name in _CLIENT_ATTRIBUTES:
        if not hasattr(client, name):
            yield f"{KazooClient.__name__} has no {name}"
    for name in _CONNECTION_ATTRIBUTES:
        if not hasattr(client._connection, name):
            yield f"{ConnectionHandler.__name__} has no {name}"


class Traffic(Protocol):
    """What sends and receives on behalf of a client while its connection is up: see connection.py."""

    def begin(self) -> None:
        """kazoo is about to connect: forget what was read and half written."""

    def wait(self, connection: socket.socket, goodbye: socket.socket, timeout: float) -> list[socket.socket]:
        """Send and receive until kazoo has something to do; return the socket that it has to read."""

    def read_for_kazoo(self, connection: socket.socket, length: int, timeout: float) -> bytes:
        """Return the next bytes that have arrived, or raise as kazoo's own `_read` does."""

    def take_half_written(self) -> bytes:
        """Return the rest of a request that the socket has not taken wholly."""


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, with the socket in reach so that a connection can be dropped from outside."""

    def __init__(self, connect_timeout: float, traffic: Traffic) -> None:
        super().__init__()
        self._traffic = traffic
        self._connect_timeout = connect_timeout
        self.connection: socket.socket | None = None
        self.ended = threading.Event()
        self.failure: Exception | None = None

    def create_connection(self, *args: Any, **kwargs: Any) -> socket.socket:
        kwargs["timeout"] = min(kwargs["timeout"], self._connect_timeout)  # it cannot be interrupted
        self.connection = super().create_connection(*args, **kwargs)
        return self.connection

    def spawn(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> threading.Thread:
        def run() -> None:
            try:
                func(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - kazoo has logged it
                self.failure = error if isinstance(error, Exception) else RuntimeError(repr(error))
            finally:
                if func.__name__ == "zk_loop":
                    self.ended.set()

        thread = threading.Thread(target=run, daemon=True, name="zkms-kazoo")
        thread.start()
        return thread

    def select(self, readers: Any, writers: Any, errors: Any, timeout: float) -> Any:
        if len(readers) == 2:  # a connection that stands, and the socket by which kazoo wakes itself
            connection, goodbye = readers
            return self._traffic.wait(connection, goodbye, timeout), [], []
        return super().select(readers, writers, errors, timeout)


def credentials(config: Config) -> dict[str, Any]:
    """What a kazoo client has to be told of who we are, and of whom to trust."""
    tls = config.tls
    return {
        "default_acl": list(config.effective_acl),
        "auth_data": set(config.auth),
        "sasl_options": config.sasl.options() if config.sasl else None,
        "use_ssl": tls is not None,
        "ca": tls.ca if tls else None,
        "certfile": tls.cert if tls else None,
        "keyfile": tls.key if tls else None,
        "keyfile_password": tls.key_password if tls else None,
        "verify_certs": tls.verify if tls else True,
        "check_hostname": tls.check_hostname if tls else False,
    }


class Client(KazooClient):  # type: ignore[misc]
    """A kazoo client, not started yet, for which `traffic` sends and receives all but kazoo's own few requests.

    `seen` tells the newest transaction, which a server must know to be accepted. `granted` is called on kazoo's thread
    when it is connected and its credentials are accepted, with 2/3 of the session time that the server grants.
    """

    def __init__(
        self,
        config: Config,
        client_id: tuple[int, bytes] | None,
        traffic: Traffic,
        *,
        seen: Callable[[], int],
        granted: Callable[[float], None],
    ) -> None:
        super().__init__(
            hosts=config.hosts,
            timeout=config.session_timeout,
            client_id=client_id,
            handler=_Handler(config.connect_timeout, traffic),
            # Jittered and capped: after an outage everybody comes back soon, and not all at once.
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_jitter=0.4, max_delay=2.0),
            logger=_kazoo_log,
            **credentials(config),
        )
        check_kazoo(self)
        connection = self._connection
        self.heard: Callable[[], None] = connection.ping_outstanding.clear
        """To be called at each sign of life from the server: kazoo gives up a connection whose ping is not answered."""
        connect, write = connection._connect, connection._write

        def connected(*address: Any) -> tuple[float, float]:
            """kazoo calls itself connected before it has shown its credentials; this is when it has."""
            self.last_zxid = seen()
            traffic.begin()
            read_timeout, connect_timeout = connect(*address)
            granted(read_timeout / 1000)
            return read_timeout, connect_timeout

        def read_for_kazoo(length: int, timeout: float) -> bytes:
            return traffic.read_for_kazoo(connection._socket, length, timeout)

        def write_for_kazoo(message: bytes, timeout: float) -> None:
            """Its pings and its goodbye."""
            write(traffic.take_half_written() + bytes(message), timeout)

        connection._connect, connection._read, connection._write = connected, read_for_kazoo, write_for_kazoo

    @property
    def xid(self) -> int:
        """The number of the last request; kazoo counts on from it."""
        number: int = self._connection._xid
        return number

    @xid.setter
    def xid(self, number: int) -> None:
        self._connection._xid = number

    @property
    def awaits_reply(self) -> bool:
        """Whether kazoo itself has asked something, so that a reply may be for it."""
        return bool(self._pending)

    @property
    def ended(self) -> bool:
        """Whether kazoo's connection thread is no more: by `failure`, by refused credentials, or as it should."""
        return bool(self.handler.ended.is_set())

    @property
    def failure(self) -> Exception | None:
        """What the connection thread died of."""
        error: Exception | None = self.handler.failure
        return error

    def drop(self) -> None:
        """Make kazoo notice at once that its connection is of no use."""
        connection = self.handler.connection
        if connection is not None:
            try:
                # SSLSocket's own would first make it a plain one, under the feet of the thread that reads from it.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
            except OSError as error:
                log.debug("connection was closed already: %s", error)

    def dispose(self) -> None:
        """Stop, within `GOODBYE` if the server hears it and soon after if it does not."""
        stopping = threading.Thread(target=self._stop_and_close, name="zkms-goodbye", daemon=True)
        stopping.start()
        stopping.join(GOODBYE if self.connected else 0.1)
        if stopping.is_alive():
            self.drop()
            stopping.join(GOODBYE)  # what then still hangs is resolving or connecting, and ends with that

    def _stop_and_close(self) -> None:
        try:
            self.stop()
            self.close()
        except Exception:
            log.warning("kazoo's client did not stop cleanly", exc_info=True)
