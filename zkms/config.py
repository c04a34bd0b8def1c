"""One frozen object holds what connect() was given; nothing else reads settings, and no secret shows in its repr."""

from __future__ import annotations

import importlib.util
import os
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kazoo.hosts import collect_hosts
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from zkms.errors import InvalidArgument
from zkms.message.codec import Codec, check_codec
from zkms.names import check_name, check_root, new_client_id
from zkms.trail.settings import Trail, as_trail
from zkms.tree.acl import Access
from zkms.tree.paths import FULL_MARK, LANE_MARK

DEFAULT_HOSTS = "127.0.0.1:2181"
LONGEST_SESSION = 2_000_000.0
"""Seconds; ZooKeeper is told in milliseconds that fit into 31 bits."""
FOREVER = 1e9
"""Seconds that every clock can count; more than that, infinity included, is taken for as much."""
Auth = tuple[str, str]
_AUTH = "auth: give ('digest', 'user:password'), zkms.Sasl(...), or a list of them"


def check_seconds(what: str, value: object) -> float:
    """`value` as a number of seconds that can be waited for, else `InvalidArgument`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:  # not a number
        raise InvalidArgument(f"{what} must be a number of seconds, not {value!r:.60}")
    return float(min(value, FOREVER))


def check_acl(acl: Iterable[Any] | None) -> tuple[Any, ...] | None:
    """`acl` as a tuple, or `InvalidArgument` if it is not of kazoo's ACL objects: those would kill its connection."""
    entries = tuple(acl) if isinstance(acl, Iterable) else () if acl is None else (acl,)
    if not all(isinstance(entry, ACL) for entry in entries) or (acl is not None and not entries):
        raise InvalidArgument("acl: give a list of kazoo's ACL objects, such as make_digest_acl() makes")
    return None if acl is None else entries


@dataclass(frozen=True, kw_only=True)
class Sasl:
    """SASL credentials; needs the package pure-sasl."""

    mechanism: str = "DIGEST-MD5"
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    service: str = "zookeeper"
    principal: str | None = None

    def options(self) -> dict[str, str]:
        """As kazoo takes them."""
        given = {
            "mechanism": self.mechanism,
            "username": self.username,
            "password": self.password,
            "service": self.service,
            "principal": self.principal,
        }
        return {key: value for key, value in given.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Tls:
    """How to speak TLS: `ca` to trust, `cert` and `key` to show; both the chain and the host name are checked."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    verify: bool = True
    check_hostname: bool = True

    def __post_init__(self) -> None:
        for what, path in (("ca", self.ca), ("cert", self.cert), ("key", self.key)):
            if path is not None and not os.path.isfile(path):  # noqa: PTH113 - Path's raises for a name that is too long
                raise InvalidArgument(f"tls: {what} file {path!r} does not exist")
        if self.check_hostname and not self.verify:
            raise InvalidArgument("tls: check_hostname needs verify; pass check_hostname=False as well")

    def context(self) -> ssl.SSLContext:
        """The same as Python's ssl has it; `InvalidArgument` if a file is not what it should be."""
        if (self.cert is None) != (self.key is None):
            raise InvalidArgument("tls: give cert and key together; one file may hold both")
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
        context.check_hostname = self.check_hostname
        context.verify_mode = ssl.CERT_REQUIRED if self.verify else ssl.CERT_NONE
        what = f"ca file {self.ca!r}"
        try:
            if self.ca is not None:
                context.load_verify_locations(self.ca)
            what = f"cert {self.cert!r} with key {self.key!r}"
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key, self.key_password or "")
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise InvalidArgument(f"tls: {what}: cannot be used: {reason}") from error
        return context


@dataclass(frozen=True, kw_only=True)
class Config:
    """What a bus runs with."""

    hosts: str = DEFAULT_HOSTS
    root: str = "/zkms"
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
        set_ = object.__setattr__  # the one way to normalise fields of a frozen dataclass
        set_(self, "root", check_root(self.root))
        set_(self, "client_id", check_name("client_id", self.client_id))
        if self.client_id.endswith(FULL_MARK) or LANE_MARK in self.client_id:
            raise InvalidArgument(
                f"client_id {self.client_id!r} must not end with {FULL_MARK!r}, nor contain {LANE_MARK!r}"
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
        """The ACL of every znode we create: the one given; else, with credentials, only for those who share them."""
        if self.acl is not None:
            return self.acl
        return CREATOR_ALL_ACL if self.auth or self.sasl else OPEN_ACL_UNSAFE  # type: ignore[no-any-return]


def configure(
    *,
    auth: Auth | Sasl | Iterable[Auth | Sasl] | None,
    acl: Iterable[Any] | None,
    client_id: str | None,
    trail: str | os.PathLike[str] | Trail | None,
    **settings: Any,
) -> Config:
    """What connect() was given, checked."""
    pairs, sasl = parse_auth(auth)
    given: dict[str, Any] = {} if client_id is None else {"client_id": client_id}
    return Config(auth=pairs, sasl=sasl, acl=check_acl(acl), trail=as_trail(trail), **settings, **given)


def parse_auth(auth: Auth | Sasl | Iterable[Auth | Sasl] | None) -> tuple[tuple[Auth, ...], Sasl | None]:
    """Split what connect(auth=...) takes into digest-like pairs and SASL."""
    if auth is None:
        return (), None
    if isinstance(auth, Sasl):
        return (), auth
    if not isinstance(auth, Iterable):
        raise InvalidArgument(_AUTH)
    items = [auth] if isinstance(auth, tuple) and len(auth) == 2 and isinstance(auth[0], str) else list(auth)
    pairs: list[Auth] = []
    sasl: Sasl | None = None
    for item in items:
        if isinstance(item, Sasl):
            sasl = item
        elif isinstance(item, tuple) and len(item) == 2 and all(isinstance(part, str) for part in item):
            pairs.append(item)
        else:
            raise InvalidArgument(_AUTH)
    return tuple(pairs), sasl
