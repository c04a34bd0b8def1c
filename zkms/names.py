"""Checks names that become znodes, before any I/O, and matches topics with patterns.

The levels of a topic are separated by dots. A topic with wildcards is a pattern: `users.*` matches `users.` and one
more level, `users.>` matches `users.` and one or more levels.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import unicodedata
from collections.abc import Sequence

from zkms.errors import InvalidArgument, InvalidTopic

MAX_BYTES = 255
FULL_MARK = "!"
"""The last character of a full flag's name, after the name of the subscription."""
PARTITION_MARK = "#"
"""Separates a group's name from the number of a partition."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


def _fault(name: object) -> str | None:
    """Return why `name` cannot be one level of a znode path, or None."""
    if not isinstance(name, str):
        return f"a name is a str, not {type(name).__name__}"
    if not name:
        return "it is empty"
    if name in (".", ".."):
        return "ZooKeeper gives '.' and '..' a meaning of their own"
    if "/" in name:
        return "it contains '/'"
    # Control, surrogate, private and unassigned characters: ZooKeeper refuses most of them, and people cannot see them.
    # It also refuses what is no single UTF-16 unit (emoji), and the specials from U+FFF0 on.
    bad = next((c for c in name if c >= "\ufff0" or unicodedata.category(c) in ("Cc", "Cs", "Co", "Cn")), None)
    if bad is not None:
        return f"it contains {bad!a}, which ZooKeeper does not take"
    if len(name.encode()) > MAX_BYTES:
        return f"it is longer than {MAX_BYTES} bytes in UTF-8"
    return None


def check_topic(topic: object) -> str:
    """Return `topic` if it is a valid topic, else raise `InvalidTopic`."""
    reason = _fault(topic)
    if reason is None and topic == "zookeeper":
        reason = "ZooKeeper reserves the name 'zookeeper'"
    if reason is not None:
        raise InvalidTopic(topic, reason)
    assert isinstance(topic, str)  # noqa: S101 - _fault has looked
    return topic


def check_name(what: str, name: object) -> str:
    """Return `name` if it can be one level of a znode path, else raise `InvalidArgument`, which says `what` it is."""
    reason = _fault(name)
    if reason is not None:
        raise InvalidArgument(f"invalid {what} {name!r:.80}: {reason}")
    assert isinstance(name, str)  # noqa: S101 - _fault has looked
    return name


def check_subscription(what: str, name: object) -> str:
    """Return `name` if a durable subscription or a group can have it, else raise `InvalidArgument`."""
    checked = check_name(what, name)
    bad = next((c for c in "#!~" if c in checked), None)
    if bad is not None:
        raise InvalidArgument(
            f"invalid {what} {name!r:.80}: it contains {bad!r}, which zkms gives a meaning of its own"
        )
    return checked


def check_root(root: object) -> str:
    """Return an absolute znode path without a trailing slash, else raise `InvalidArgument`."""
    if not isinstance(root, str) or not root.startswith("/") or not root.strip("/"):
        raise InvalidArgument(f"invalid root {root!r:.80}: give an absolute znode path such as '/zkms'")
    levels = root.rstrip("/").split("/")[1:]
    for level in levels:
        check_name("root", level)
    if levels[0] == "zookeeper":
        raise InvalidArgument("invalid root: ZooKeeper reserves /zookeeper")
    return "/" + "/".join(levels)


def new_client_id() -> str:
    """Return a unique id that people can read: host-pid-random."""
    host = _UNSAFE.sub("-", socket.gethostname().split(".")[0])[:40].strip("-") or "host"
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


def is_pattern(topic: str) -> bool:
    """Whether a topic is a pattern."""
    levels = topic.split(".")
    return "*" in levels or levels[-1] == ">"


def matches(pattern: str, topic: str) -> bool:
    """Whether a pattern matches a topic."""
    wanted, given = pattern.split("."), topic.split(".")
    if wanted[-1] == ">":
        return len(given) >= len(wanted) and _alike(wanted[:-1], given)
    return len(given) == len(wanted) and _alike(wanted, given)


def _alike(wanted: Sequence[str], given: Sequence[str]) -> bool:
    return all(level in ("*", other) for level, other in zip(wanted, given, strict=False))
