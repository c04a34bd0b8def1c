"""What is found where no ZooKeeper answered: for the error of a connect() that failed."""

from __future__ import annotations

import contextlib
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from kazoo.hosts import collect_hosts

_PATIENCE = 0.75
_HANDSHAKE = 5.0
"""Seconds for a TLS handshake: a busy server takes its time, and there is something to learn from it."""


def diagnose(hosts: str, context: ssl.SSLContext | None) -> str:
    """What is found at each host, in a few words; `context` if TLS is to be spoken there."""
    addresses = collect_hosts(hosts)[0]
    with ThreadPoolExecutor(len(addresses)) as pool:
        return "; ".join(pool.map(partial(_probe, context), addresses))


def _probe(context: ssl.SSLContext | None, address: tuple[str, int]) -> str:
    where = "{}:{}".format(*address)
    try:
        connection = socket.create_connection(address, timeout=1.0)
    except TimeoutError:
        return f"{where} does not accept connections"
    except socket.gaierror:
        return f"{where}: no such host"
    except OSError as error:
        return f"{where}: {error.strerror or error}"
    with connection:
        connection.settimeout(_PATIENCE)
        try:
            if context is None:
                said = _judge(connection)
            else:
                connection.settimeout(_HANDSHAKE)
                with context.wrap_socket(connection, server_hostname=address[0]) as encrypted:
                    encrypted.settimeout(_PATIENCE)
                    said = _judge(encrypted)
        except ssl.SSLCertVerificationError as error:
            return f"{where}: its certificate is not accepted: {error.verify_message}"
        except ssl.SSLError as error:
            return f"{where}: no TLS connection: {(error.reason or str(error)).replace('_', ' ').lower()}"
        except TimeoutError:
            return f"{where} accepts connections but does not answer to TLS"
        except OSError as error:
            return f"{where} does not speak TLS: {error.strerror or error}"
    if said is None:
        said = "speaks TLS: pass tls=" if context is None and _speaks_tls(address) else "hangs up: it is no ZooKeeper"
    return f"{where} {said}"


def _judge(connection: socket.socket) -> str | None:
    """What the other side seems to be; None if it just hangs up."""
    for words in (b"srvr", b"\n\n"):  # a server of lines answers to the second
        try:
            connection.sendall(words)
            reply = connection.recv(64)
        except TimeoutError:
            continue
        except ConnectionError:
            return None
        if reply.startswith((b"Zookeeper", b"This ZooKeeper", b"srvr is not")):
            return "is a ZooKeeper that does not serve now"
        return "is no ZooKeeper" if reply else None
    return "accepts connections but does not answer"


def _speaks_tls(address: tuple[str, int]) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent: we only want to know
    with contextlib.suppress(OSError), socket.create_connection(address, timeout=1.0) as connection:
        connection.settimeout(_HANDSHAKE)
        try:
            context.wrap_socket(connection).close()
        except ssl.SSLError as error:
            return "ALERT" in (error.reason or "")
        return True
    return False
