"""kazoo's client as a session needs it: its threads and sockets in reach, its debug output without secrets."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.retry import KazooRetry

from zkms.config import Config
from zkms.zookeeper.connection import Connection

log = logging.getLogger("zkms.session")
_kazoo_log = logging.getLogger("zkms.kazoo")
_kazoo_log.setLevel(logging.WARNING)  # at DEBUG kazoo prints credentials and payloads


def _without_contents(record: logging.LogRecord) -> bool:
    """kazoo quotes a request whose answer it cannot read, with all that is in it: its kind will do."""
    if "of request" in str(record.msg) and isinstance(record.args, tuple):
        record.args = tuple(type(arg).__name__ for arg in record.args)
    return True


_kazoo_log.addFilter(_without_contents)

GOODBYE = 2.0
"""Seconds that a server has to answer the end of a session."""


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, with the socket in reach so that a connection can be dropped from outside."""

    def __init__(self, connect_timeout: float, flow: Connection) -> None:
        super().__init__()
        self._flow = flow
        self.connection: socket.socket | None = None
        self.ended = threading.Event()
        """Set when kazoo's connection thread is no more: by `failure`, by refused credentials, or as it should."""
        self.failure: Exception | None = None
        self._connect_timeout = connect_timeout

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
        if len(readers) == 2:  # a connection that stands, and kazoo's own bell
            connection, bell = readers
            return self._flow.wait(connection, bell, timeout), [], []
        return super().select(readers, writers, errors, timeout)

    def drop(self) -> None:
        """Make kazoo notice at once that its connection is of no use."""
        connection = self.connection
        if connection is not None:
            try:
                # SSLSocket's own would first make it a plain one, under the feet of the thread that reads from it.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
            except OSError as error:
                log.debug("connection was closed already: %s", error)


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


def new_client(
    config: Config,
    client_id: tuple[int, bytes] | None,
    flow: Connection,
    *,
    seen: Callable[[], int],
    granted: Callable[[float], None],
) -> tuple[KazooClient, Handler]:
    """A client that is not started yet, whose traffic is `flow`'s.

    `seen` tells the newest transaction, which a server must know to be accepted. `granted` is called on kazoo's thread
    when it is connected and its credentials are accepted, with 2/3 of the session time that the server grants.
    """
    handler = Handler(config.connect_timeout, flow)
    client = KazooClient(
        hosts=config.hosts,
        timeout=config.session_timeout,
        client_id=client_id,
        handler=handler,
        # Jittered and capped: after an outage everybody comes back soon, and not all at once.
        connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_jitter=0.4, max_delay=2.0),
        logger=_kazoo_log,
        **credentials(config),
    )
    connect = client._connection._connect

    def connected(*address: Any) -> tuple[float, float]:
        """kazoo calls itself connected before it has shown its credentials; this is when it has."""
        client.last_zxid = seen()
        flow.begin()
        read_timeout, connect_timeout = connect(*address)
        granted(read_timeout / 1000)
        return read_timeout, connect_timeout

    client._connection._connect = connected
    flow.attach(client)
    return client, handler


def dispose(client: KazooClient, handler: Handler) -> None:
    """Stop a client, within `GOODBYE` if the server hears it and soon after if it does not."""

    def stop() -> None:
        try:
            client.stop()
            client.close()
        except Exception:
            log.warning("kazoo's client did not stop cleanly", exc_info=True)

    stopping = threading.Thread(target=stop, name="zkms-goodbye", daemon=True)
    stopping.start()
    stopping.join(GOODBYE if client.connected else 0.1)
    if stopping.is_alive():
        handler.drop()
        stopping.join(GOODBYE)  # what then still hangs is resolving or connecting, and ends with that
