"""Fuzzes the cleaner's HTTP endpoints: any bytes are answered or end the connection, and the next one is served."""

from __future__ import annotations

import io
import socket
from contextlib import redirect_stderr

from prometheus_client import CollectorRegistry, Counter
from zkms_cleaner.web import Web

from verification.fuzz.target import Target

REGISTRY = CollectorRegistry()
Counter("zkms_fuzz", "Something to show.", registry=REGISTRY).inc()
_web: Web | None = None


def web() -> Web:
    """One for all inputs, as long as the process lives."""
    global _web
    if _web is None:
        _web = Web("127.0.0.1", 0, REGISTRY, healthy=lambda: True, ready=lambda: False)
    return _web


def check(data: bytes) -> None:
    """One connection, handled here and now by the server's own handler: a socket pair stands for the network."""
    server = web()._server
    ours, theirs = socket.socketpair()
    ours.settimeout(10)
    said = io.StringIO()
    with ours, redirect_stderr(said):
        ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)
        try:
            server.finish_request(theirs, ("127.0.0.1", 1))
        finally:
            server.shutdown_request(theirs)
        answer = b"".join(iter(lambda: ours.recv(65536), b""))
    assert "Traceback" not in said.getvalue(), said.getvalue()
    assert b"Traceback" not in answer
    assert b" 500 " not in answer[:20], answer[:200]


GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"
TARGETS = (
    Target(
        "HTTP endpoints",
        check,
        (
            *(GET % path for path in (b"/metrics", b"/healthz", b"/readyz", b"/", b"/metrics?name[]=zkms_fuzz_total")),
            b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
            (
                b"GET /metrics HTTP/1.0\r\nAccept: application/openmetrics-text; version=1.0.0; q=0.5\r\n"
                b"Accept-Encoding: gzip\r\n\r\n"
            ),
            b"OPTIONS * HTTP/1.1\r\n\r\n",
        ),
        (
            b"GET ",
            b" HTTP/1.1\r\n",
            b"\r\n",
            b"\r\n\r\n",
            b"Content-Length: -1\r\n",
            b"Accept: ",
            b"%00",
            b"%2e%2e/",
            b"//",
        ),
    ),
)
