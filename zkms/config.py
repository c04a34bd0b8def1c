"""The settings of connect() as one frozen, checked object, whose repr shows no secrets."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from kazoo.hosts import collect_hosts
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from zkms.checks import Codec, check_codec, check_options, check_seconds
from zkms.errors import InvalidArgument
from zkms.names import FULL_MARK, PARTITION_MARK, check_name, check_root, new_client_id
from zkms.security import Access, Auth, Sasl, Tls, check_acl, parse_auth

DEFAULT_HOSTS = "127.0.0.1:2181"
DEFAULT_ROOT = "/zkms"
LONGEST_SESSION = 2_000_000.0
"""Seconds: in milliseconds they must fit into 31 bits."""
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Trail:
    """The settings of a trail, for connect(trail=...)."""

    directory: str | os.PathLike[str]
    flush: float = 0.2
    """Seconds between two writes: the most that is lost when the process is killed."""
    file_bytes: int = 16 * MEBIBYTE
    file_seconds: float = 60.0
    """A file is finished, and can be exported, at this size or age."""
    total_bytes: int = 1024 * MEBIBYTE
    """The most bytes of all files in the directory: beyond that the oldest finished ones are removed."""
    queue: int = 50_000
    """The most lines that wait to be written: further ones are lost, and counted."""
    path: Path = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.directory, (str, os.PathLike)) or not os.fspath(self.directory):
            raise InvalidArgument(f"trail: give a directory, not {self.directory!r:.80}")
        object.__setattr__(self, "path", Path(self.directory))
        for what in ("flush", "file_bytes", "file_seconds", "total_bytes", "queue"):
            value = getattr(self, what)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                raise InvalidArgument(f"trail: {what} must be a number above 0, not {value!r:.60}")


@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of a bus."""

    hosts: str = DEFAULT_HOSTS
    root: str = DEFAULT_ROOT
    client_id: str = field(default_factory=new_client_id)
    producer: str | None = None
    cleaner: bool = True
    session_timeout: float = 10.0
    connect_timeout: float = 15.0
    request_timeout: float = 10.0
    auth: tuple[Auth, ...] = field(default=(), repr=False)
    sasl: Sasl | None = None
    tls: Tls | None = None
    acl: tuple[Any, ...] | None = None
    access: Access | None = None
    codec: Codec | None = None
    trail: Trail | None = None

    def __post_init__(self) -> None:
        set_ = object.__setattr__  # the only way to normalise fields of a frozen dataclass
        set_(self, "root", check_root(self.root))
        set_(self, "client_id", check_name("client_id", self.client_id))
        if self.client_id.endswith(FULL_MARK) or PARTITION_MARK in self.client_id:
            raise InvalidArgument(
                f"client_id {self.client_id!r} must not end with {FULL_MARK!r}, nor contain {PARTITION_MARK!r}"
            )
        check_codec(self.codec)
        if self.trail is not None and not isinstance(self.trail, Trail):
            raise InvalidArgument(f"trail: give a directory or zkms.trail.Trail(...), not {self.trail!r:.60}")
        if self.producer is not None:
            check_name("producer", self.producer)
        for what in ("session_timeout", "connect_timeout", "request_timeout"):
            set_(self, what, check_seconds(what, getattr(self, what)))
            if getattr(self, what) <= 0:
                raise InvalidArgument(f"{what} must be more than 0 seconds")
        if self.session_timeout > LONGEST_SESSION:
            raise InvalidArgument(f"session_timeout must be at most {LONGEST_SESSION:,.0f} seconds")
        if self.tls is not None and not isinstance(self.tls, Tls):
            raise InvalidArgument(f"tls: give zkms.Tls(...), not {self.tls!r:.60}")
        check_acl(self.acl)
        if self.access is not None:
            if not isinstance(self.access, Access):
                raise InvalidArgument(f"access: give zkms.Access(...), not {type(self.access).__name__}")
            if self.acl is not None:
                raise InvalidArgument("give access= or acl=, not both: access= makes an ACL for every znode")
            if not (self.auth or self.sasl or (self.tls and self.tls.cert)):
                raise InvalidArgument("access= is for those who say who they are: give auth=, or tls= with a cert")
        if not isinstance(self.hosts, str) or not self.hosts.strip():
            raise InvalidArgument("hosts: give 'host:port,host:port'")
        try:
            collect_hosts(self.hosts)
        except ValueError as error:
            raise InvalidArgument(f"hosts {self.hosts!r}: {error}; give 'host:port,host:port'") from error
        if self.sasl is not None and importlib.util.find_spec("puresasl") is None:
            raise InvalidArgument("SASL needs the package pure-sasl: pip install pure-sasl")

    @property
    def effective_acl(self) -> Sequence[Any]:
        """The ACL of every znode that we create: `acl`; by default only for our credentials, if there are any."""
        if self.acl is not None:
            return self.acl
        return CREATOR_ALL_ACL if self.auth or self.sasl else OPEN_ACL_UNSAFE  # type: ignore[no-any-return]


class ConnectOptions(TypedDict, total=False):
    """Options of connect(), for both buses; the defaults are those of `Config`."""

    producer: str | None
    """The name of the producer, whose message numbers go on after a restart."""
    cleaner: bool
    """Whether this process stands for the cleaners' election; True by default."""
    auth: Auth | Sasl | Iterable[Auth | Sasl] | None
    """Credentials: znodes are then open to those with the same ones only."""
    tls: Tls | None
    """Encrypts the connection, and may say who we are."""
    acl: Iterable[Any] | None
    """The ACL of all znodes: kazoo's ACL objects."""
    access: Access | None
    """Who is producer, subscriber and cleaner: makes an ACL for every znode."""
    codec: Codec | None
    """Encodes and decodes the data of messages, where none is given for one call."""
    trail: str | os.PathLike[str] | Trail | None
    """Where to record what happens to messages: a directory, or a `zkms.trail.Trail`."""
    client_id: str | None
    """The name of this process in ZooKeeper; a new one by default."""
    session_timeout: float
    """Seconds after which ZooKeeper takes a silent process for gone; 10 by default."""
    connect_timeout: float
    """Seconds to wait for the first connection; 15 by default."""
    request_timeout: float
    """Seconds after which a request that ZooKeeper does not answer raises; 10 by default."""


def configure(
    hosts: str = DEFAULT_HOSTS,
    root: str = DEFAULT_ROOT,
    *,
    auth: Auth | Sasl | Iterable[Auth | Sasl] | None = None,
    acl: Iterable[Any] | None = None,
    client_id: str | None = None,
    trail: str | os.PathLike[str] | Trail | None = None,
    **settings: Any,
) -> Config:
    """Check the arguments of connect()."""
    check_options("connect", settings, ConnectOptions.__annotations__)
    pairs, sasl = parse_auth(auth)
    client_id = new_client_id() if client_id is None else client_id
    return Config(
        hosts=hosts,
        root=root,
        auth=pairs,
        sasl=sasl,
        acl=check_acl(acl),
        client_id=client_id,
        trail=as_trail(trail),
        **settings,
    )


def as_trail(given: str | os.PathLike[str] | Trail | None) -> Trail | None:
    """Return the `Trail` of a trail= argument, or raise `InvalidArgument`."""
    if given is None or isinstance(given, Trail):
        return given
    return Trail(directory=given)
