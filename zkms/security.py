"""Credentials, TLS, and the identities in a tree's access policy."""

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
"""The most identities of one role: each is part of the ACL of every queue."""
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
        """Return them in kazoo's form."""
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
    """TLS settings: the trusted `ca`, our own `cert` and `key`; the chain and the host name are checked."""

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
        """Return an SSLContext; `InvalidArgument` if a file cannot be used."""
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
    """Split the argument of connect(auth=...) into digest-like pairs and SASL."""
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
    """Return `acl` as a tuple; `InvalidArgument` for other objects than kazoo's, which would break its connection."""
    entries = tuple(acl) if isinstance(acl, Iterable) else () if acl is None else (acl,)
    if not all(isinstance(entry, ACL) for entry in entries) or (acl is not None and not entries):
        raise InvalidArgument("acl: give a list of kazoo's ACL objects, such as make_digest_acl() makes")
    return None if acl is None else entries


def identity(scheme: str, credential: str) -> str:
    """Return the identity of these credentials in ACLs, such as "digest:ann:HASH" for ("digest", "ann:pw").

    For sasl and x509 the credential is the name itself: `identity("sasl", "ann")`, `identity("x509", "CN=ann")`.
    """
    if scheme == "digest":
        user, separator, password = credential.partition(":")
        if not separator:
            raise InvalidArgument("identity: of digest the credential is 'user:password'")
        credential = make_digest_acl_credential(user, password)
    return check_identity(f"{scheme}:{credential}")


def check_identity(value: object) -> str:
    """Return `value` if it is an identity; else raise `InvalidArgument`, which quotes nothing but the scheme."""
    if not isinstance(value, str) or _IDENTITY.fullmatch(value) is None:
        raise InvalidArgument("an identity is 'SCHEME:NAME', such as 'sasl:ann'; zkms.identity() makes one")
    scheme = value.partition(":")[0]
    if scheme in _NOT_SOMEBODY:
        raise InvalidArgument(f"{scheme!r} is nobody in particular: name an identity of digest, sasl or x509")
    if scheme == "digest" and _DIGEST.fullmatch(value) is None:
        raise InvalidArgument("of digest an identity is 'digest:USER:HASH'; zkms.identity('digest', 'user:password')")
    return value


def masked(identity: str) -> str:
    """Return an identity without the hash of its password."""
    scheme, _, name = identity.partition(":")
    return f"{scheme}:{name.partition(':')[0]}" if scheme == "digest" else identity


def hidden(identity: str) -> str:
    """Return an identity as ZooKeeper shows it to clients without admin rights."""
    return f"{masked(identity)}:x" if identity.startswith("digest:") else identity


@dataclass(frozen=True, kw_only=True)
class Access:
    """The access policy of a tree: the identities (see `zkms.identity`) of producers, subscribers and cleaners.

    An identity may have several roles. Processes that share its credentials share its queues.
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
        """Return it in the form that is stored in ROOT."""
        return {"producers": self.producers, "subscribers": self.subscribers, "cleaners": self.cleaners}
