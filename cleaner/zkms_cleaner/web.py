"""A small HTTP server for /metrics, /healthz and /readyz."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    timeout = 10  # whoever connects and says nothing holds a thread no longer than that

    def log_message(self, *_args: object) -> None:
        """A probe every few seconds is no news."""


class Web:
    """Serves until close(); `OSError` if the port is taken."""

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        *,
        healthy: Callable[[], bool],
        ready: Callable[[], bool],
    ) -> None:
        self._metrics = make_wsgi_app(registry)
        self._probes = {"/healthz": healthy, "/readyz": ready}
        self._server = make_server(host, port, self._answer, _Server, _Handler)
        self.url = f"http://{host}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="zkms-cleaner-web", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            try:
                page: Iterable[bytes] = self._metrics(environ, start)
                return page
            except Exception as error:  # noqa: BLE001 - whatever headers and query led to, before anything was sent
                return _reply(start, "400 Bad Request", f"this cannot be asked: {type(error).__name__}")
        probe = self._probes.get(path)
        if probe is None:
            status, text = "404 Not Found", "look at /metrics, /healthz or /readyz"
        else:
            status, text = ("200 OK", "yes") if probe() else ("503 Service Unavailable", "no")
        return _reply(start, status, text)


def _reply(start: StartResponse, status: str, text: str) -> list[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [f"{text}\n".encode()]
