"""One web process: rows of a shared SQLite file, through a cache that is coherent with those of the others.

GET /            the page                     GET /rows             all rows, each from memory or from the database
GET /nodes       all processes                GET /dropped/NUMBER   when this process has dropped a row
PUT /rows/NUMBER the new text is the body
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cachetools

import zkms

PAGE = Path(__file__).with_name("page.html")
ROWS = ["Espresso", "Flat white", "Cortado", "Filter coffee", "Hot chocolate"]


def make_database(path: Path) -> None:
    """A table with a few rows."""
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, text TEXT NOT NULL)")
        database.executemany("INSERT INTO rows (text) VALUES (?)", [(text,) for text in ROWS])
    database.close()


class Watched(cachetools.LRUCache[int, str]):
    """An LRUCache that knows when a row was dropped from it: that is all the page needs beyond zkms.Cache."""

    def __init__(self, maxsize: int) -> None:
        super().__init__(maxsize)
        self.dropped: dict[int, float] = {}

    def pop(self, key: int, *default: Any) -> Any:  # type: ignore[override]
        """Called when somebody has invalidated the row; this clock is the same for all processes of a machine."""
        if key in self:
            self.dropped[key] = time.clock_gettime(time.CLOCK_MONOTONIC)
        return super().pop(key, *default)


class Shop:
    """The rows, through the cache."""

    def __init__(self, bus: zkms.Bus, database: Path) -> None:
        self._database = database
        self._memory = Watched(1000)
        self._cache = zkms.Cache(bus, "web-app", mapping=self._memory)

    def rows(self) -> list[dict[str, Any]]:
        """All of them, and where each came from."""
        return [self._row(number) for number in range(1, len(ROWS) + 1)]

    def _row(self, number: int) -> dict[str, Any]:
        cached = self._cache.holds(number)
        return {
            "number": number,
            "text": self._cache.get(number, self._load),
            "from": "memory" if cached else "database",
        }

    def change(self, number: int, text: str) -> dict[str, Any]:
        """Write the row; when this returns, no process has the old one, or we know which."""
        self._execute("UPDATE rows SET text = ? WHERE number = ?", text, number)
        began = time.clock_gettime(time.CLOCK_MONOTONIC)
        outcome = self._cache.invalidate(number, wait=10.0)
        took = time.clock_gettime(time.CLOCK_MONOTONIC) - began
        return {"began": began, "took": took, "everywhere": bool(outcome), "by": os.getpid()}

    def dropped(self, number: int) -> float | None:
        """When it was dropped here last."""
        return self._memory.dropped.get(number)

    def _load(self, number: int) -> str:
        return str(self._execute("SELECT text FROM rows WHERE number = ?", number)[0][0])

    def _execute(self, statement: str, *values: Any) -> list[Any]:
        database = sqlite3.connect(self._database, timeout=10)
        try:
            with database:
                return database.execute(statement, values).fetchall()
        finally:
            database.close()


class Handler(BaseHTTPRequestHandler):
    """HTTP, as little of it as the page needs."""

    shop: Shop
    urls: list[str]

    def do_GET(self) -> None:
        """What can be asked."""
        match self.path.strip("/").split("/"):
            case [""]:
                self._send(PAGE.read_bytes(), "text/html; charset=utf-8")
            case ["nodes"]:
                self._send(json.dumps(self.urls).encode())
            case ["rows"]:
                self._send(json.dumps({"pid": os.getpid(), "rows": self.shop.rows()}).encode())
            case ["dropped", number] if number.isdecimal():
                self._send(json.dumps(self.shop.dropped(int(number))).encode())
            case _:
                self.send_error(HTTPStatus.NOT_FOUND)

    def do_PUT(self) -> None:
        """The one change there is."""
        text = self.rfile.read(min(1000, int(self.headers.get("Content-Length") or 0))).decode(errors="replace").strip()
        match self.path.strip("/").split("/"):
            case ["rows", number] if number.isdecimal() and 1 <= int(number) <= len(ROWS) and text:
                self._send(json.dumps(self.shop.change(int(number), text)).encode())
            case _:
                self.send_error(HTTPStatus.NOT_FOUND)

    def do_OPTIONS(self) -> None:
        """The page comes from one process and talks to all."""
        self._send(b"")

    def _send(self, body: bytes, kind: str = "application/json") -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        origin = self.headers.get("Origin")
        if origin in self.urls:
            self.send_header("Access-Control-Allow-Origin", origin)
            self.send_header("Access-Control-Allow-Methods", "GET, PUT")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: Any) -> None:
        """The page says enough."""


def serve(listening: socket.socket, until: Connection, urls: list[str], hosts: str, root: str, database: Path) -> None:
    """Serve until the other end of a pipe is closed: by the process that started this one, or because it has died."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all of us; the first process tells us in good order
    with zkms.connect(hosts, root=root) as bus:
        handler = type("ShopHandler", (Handler,), {"shop": Shop(bus, database), "urls": urls})
        server = ThreadingHTTPServer(listening.getsockname()[:2], handler, bind_and_activate=False)
        server.socket.close()
        server.socket = listening
        threading.Thread(target=lambda: until.poll(None) and server.shutdown(), daemon=True).start()
        server.serve_forever(poll_interval=0.2)
