"""Who we are and whom we trust: credentials, TLS, and the identities that a tree's policy names."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from kazoo.security import ACL, make_digest_acl_credential

from zkms.errors import InvalidArgument

Auth = tuple[str, str]
_AUTH = "auth: give ('digest', 'user:password'), zkms.Sasl(...), or a list of them"
MOST = 32
"""Identities of one role: each is part of the ACL of every queue."""
_IDENTITY = re.compile(r"[a-z][a-z0-9]{0,31}:[^\x00-\x1f\x7f]{1,255}")
_DIGEST = re.compile(r"digest:[^:]+:[A-Za-z0-9+/]{27}=")
_NOT_SOMEBODY = ("world", "auth", "ip", "super")


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


def check_acl(acl: Iterable[Any] | None) -> tuple[Any, ...] | None:
    """`acl` as a tuple, or `InvalidArgument` if it is not of kazoo's ACL objects: those would kill its connection."""
    entries = tuple(acl) if isinstance(acl, Iterable) else () if acl is None else (acl,)
    if not all(isinstance(entry, ACL) for entry in entries) or (acl is not None and not entries):
        raise InvalidArgument("acl: give a list of kazoo's ACL objects, such as make_digest_acl() makes")
    return None if acl is None else entries


def identity(scheme: str, credential: str) -> str:
    """How ZooKeeper's ACLs call whoever shows these credentials, such as "digest:ann:HASH" for ("digest", "ann:pw").

    Of sasl and x509 the credential is the name itself: `identity("sasl", "ann")`, `identity("x509", "CN=ann")`.
    """
    if scheme == "digest":
        user, separator, password = credential.partition(":")
        if not separator:
            raise InvalidArgument("identity: of digest the credential is 'user:password'")
        credential = make_digest_acl_credential(user, password)
    return check_identity(f"{scheme}:{credential}")


def check_identity(value: object) -> str:
    """`value`, if it can stand in an ACL for somebody; else `InvalidArgument`, which quotes no more than its scheme."""
    if not isinstance(value, str) or _IDENTITY.fullmatch(value) is None:
        raise InvalidArgument("an identity is 'SCHEME:NAME', such as 'sasl:ann'; zkms.identity() makes one")
    scheme = value.partition(":")[0]
    if scheme in _NOT_SOMEBODY:
        raise InvalidArgument(f"{scheme!r} is nobody in particular: name an identity of digest, sasl or x509")
    if scheme == "digest" and _DIGEST.fullmatch(value) is None:
        raise InvalidArgument("of digest an identity is 'digest:USER:HASH'; zkms.identity('digest', 'user:password')")
    return value


def masked(identity: str) -> str:
    """An identity without what a password could be guessed from."""
    scheme, _, name = identity.partition(":")
    return f"{scheme}:{name.partition(':')[0]}" if scheme == "digest" else identity


def hidden(identity: str) -> str:
    """An identity as ZooKeeper shows it to those who may not change the ACL that it is in."""
    return f"{masked(identity)}:x" if identity.startswith("digest:") else identity


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who is what in a tree: identities (see `zkms.identity`) of those who publish, subscribe and clean.

    An identity may have several roles. It is who shows its credentials: those that share them share its queues.
    """

    producers: tuple[str, ...]
    subscribers: tuple[str, ...]
    cleaners: tuple[str, ...]

    def __init__(self, *, producers: Iterable[str], subscribers: Iterable[str], cleaners: Iterable[str]) -> None:
        for role, given in (("producers", producers), ("subscribers", subscribers), ("cleaners", cleaners)):
            if isinstance(given, str) or not isinstance(given, Iterable):
                raise InvalidArgument(f"access: give {role} as a list of identities")
            listed = tuple(sorted({check_identity(each) for each in given}))
            if not 1 <= len(listed) <= MOST:
                raise InvalidArgument(f"access: give 1 to {MOST} {role}, not {len(listed)}")
            object.__setattr__(self, role, listed)

    def __repr__(self) -> str:
        shown = (f"{f.name}={[masked(each) for each in getattr(self, f.name)]}" for f in fields(self))
        return f"Access({', '.join(shown)})"

    def record(self) -> dict[str, tuple[str, ...]]:
        """As ROOT keeps it."""
        return {"producers": self.producers, "subscribers": self.subscribers, "cleaners": self.cleaners}
