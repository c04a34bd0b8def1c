"""The users that the nodes cache: a table in SQLite that every process opens for itself."""

from __future__ import annotations

import sqlite3
from pathlib import Path

USERS = range(1, 51)


class Database:
    """Slow and true; what a cache is for."""

    def __init__(self, path: str | Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)

    def create(self) -> None:
        """Make the users."""
        # Lost on a power cut, which the demo may be: an update then costs microseconds, not a disk's turn.
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = OFF")
        self._connection.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
        self._connection.executemany("INSERT INTO users VALUES (?, ?)", [(i, f"user {i}") for i in USERS])

    def name(self, user: int) -> str:
        """The name that a user has now."""
        (name,) = self._connection.execute("SELECT name FROM users WHERE id = ?", (user,)).fetchone()
        return str(name)

    def rename(self, user: int, name: str) -> None:
        """Give a user another name; committed when this returns."""
        self._connection.execute("UPDATE users SET name = ? WHERE id = ?", (name, user))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
