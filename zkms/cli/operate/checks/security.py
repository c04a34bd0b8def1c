"""What is open: to whom the tree, the server and the credentials on this machine are."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from kazoo.hosts import collect_hosts

from zkms.admin.quota import read_quotas
from zkms.cli.connection import Inspector, exposure, secret_files
from zkms.cli.operate.checks import CLEANERS_SEE, Finding, some
from zkms.config import Config
from zkms.errors import NodeMissing, StoreError, Unauthorised, ZkmsError
from zkms.server.words import ask
from zkms.tree.acl import kind_of
from zkms.tree.layout import strangers
from zkms.zookeeper.session import Session

LOOKED_AT = 3
"""Znodes of a kind, below each znode of the kind above it."""
LISTABLE = 1_000
"""Children that a znode may have to be listed here."""
WORDS = {"dump": "sessions and their ephemeral znodes", "cons": "clients and their addresses"}
"""Four-letter words that tell what no ACL protects."""


def check_way(config: Config) -> Iterator[Finding]:
    """From here to the servers: encryption, and what they tell to everybody."""
    addresses = [(str(host), int(port)) for host, port in collect_hosts(config.hosts)[0]]
    if config.tls is not None:
        checked = config.tls.verify and config.tls.check_hostname
        if checked:
            yield Finding("encryption", "ok", "TLS; the servers' certificates and names are checked")
        else:
            advice = "leave verify and check_hostname as they are: anybody in between can read and change everything"
            yield Finding("encryption", "warning", "TLS, but who the servers are is not checked", advice)
        return  # four-letter words are for the port without TLS
    if all(_is_here(host) for host, _ in addresses):
        yield Finding("encryption", "ok", "none, and none is needed on one machine")
    else:
        advice = "set secureClientPort in zoo.cfg, and ZKMS_TLS_CA here or tls= in zkms.connect()"
        yield Finding("encryption", "warning", "none: passwords and messages can be read on their way", advice)
    for host, port in addresses:
        yield from _words(host, port)


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _words(host: str, port: int) -> Iterator[Finding]:
    told = []
    answered = False
    for word, what in WORDS.items():
        try:
            answer = ask(host, port, word)
        except OSError:
            continue
        answered = True
        if answer and "not in the whitelist" not in answer:
            told.append(f"{word} ({what})")
    where = f"words {host}:{port}"
    if told:
        said = f"tells everybody who asks: {', '.join(told)}"
        yield Finding(where, "warning", said, "4lw.commands.whitelist=srvr in its zoo.cfg")
    elif answered:
        yield Finding(where, "ok", "tells nobody who and what is there")


def check_access(inspector: Inspector) -> Iterator[Finding]:
    """Who may do anything below ROOT, kind by kind; and whether sessions without credentials are served."""
    config, root = inspector.session.config, inspector.tree.root
    kinds: dict[str, set[str]] = {}
    hidden: set[str] = set()
    for path in _sample(inspector, root, 0):
        try:
            allowed, _ = inspector.session.acl(path)
        except NodeMissing:
            continue
        except Unauthorised:
            hidden.add(kind_of(root, path))
            continue
        kinds.setdefault(kind_of(root, path), set()).update(allowed)
    everybody = sorted(kind for kind, allowed in kinds.items() if "world:anyone" in allowed)
    rights = inspector.session.rights
    if everybody and len(everybody) == len(kinds):
        advice = "connect with auth= or ZKMS_AUTH from the beginning, and the tree is made for those only"
        yield Finding("access", "warning", "open to everybody who reaches ZooKeeper", advice)
    elif everybody:
        advice = "'setAcl -R' of ZooKeeper's own shell closes what is there; then connect with auth= everywhere"
        if rights is not None:
            advice = "'setAcl' of ZooKeeper's own shell, as a cleaner: docs/threat-model.md says who may do what where"
        yield Finding("access", "problem", f"open to everybody: {some(everybody, 40)}", advice)
    elif rights is not None and (faults := strangers(inspector.session, inspector.tree, rights)):
        said = "; ".join(f"{path}: {fault}" for path, fault in faults.items())
        yield Finding("access", "problem", said, "have the tree removed, or use another root: see docs/threat-model.md")
    elif rights is not None:
        roles = ", ".join(f"{len(who)} {role}" for role, who in rights.access.record().items())
        yield Finding("access", "ok", f"by separate roles: {roles}")
    else:
        known = sorted(kinds[kind_of(root, root)])
        yield Finding("access", "ok", f"for {some([_short(each) for each in known])} only")
    if hidden:
        said = f"not looked at, since these credentials may not: {some(sorted(hidden), 40)}"
        yield Finding("access", "ok", said, CLEANERS_SEE)
    if config.auth or config.sasl or (config.tls and config.tls.cert):
        yield _strangers(config)


def _short(identity: str) -> str:
    return identity.rpartition(":")[0] if identity.startswith("digest:") else identity


def _sample(inspector: Inspector, path: str, depth: int) -> Iterator[str]:
    """A few znodes of every kind; none with many children is listed."""
    yield path
    try:
        stat = inspector.session.exists(path)
        if stat is None or not 0 < stat.numChildren <= LISTABLE:
            return
        names = inspector.names(path)
    except StoreError:
        return
    for name in names if depth == 0 else names[:LOOKED_AT]:
        yield from _sample(inspector, f"{path}/{name}", depth + 1)


def _strangers(config: Config) -> Finding:
    """Somebody without credentials, and without our certificate, tries to get in."""
    tls = config.tls and replace(config.tls, cert=None, key=None, key_password=None)
    session = Session(replace(config, auth=(), sasl=None, access=None, tls=tls))
    try:
        session.start()
        session.exists("/")
    except Unauthorised:
        return Finding("strangers", "ok", "a session without credentials is not served")
    except ZkmsError as error:
        if config.tls and config.tls.cert and re.search("alert .*certificate", str(error)):
            return Finding("strangers", "ok", "a session without a certificate is not served")
        said = f"whether sessions without credentials are served could not be found out: {error}"
        return Finding("strangers", "warning", said, "try again")
    finally:
        session.close()
    advice = "enforce.auth.enabled=true and enforce.auth.schemes=digest (or sasl, x509) in zoo.cfg"
    said = "sessions without credentials are served: ACLs are all that is between them and what is there"
    return Finding("strangers", "warning", said, advice)


def check_secrets() -> Iterator[Finding]:
    """Files with secrets on this machine that are used, as the environment names them."""
    for variable, name in secret_files().items():
        try:
            status = Path(name).stat()
        except OSError:
            continue  # said where it is used
        if fault := exposure(status):
            yield Finding(variable, "problem", f"{name} {fault}", "chmod 600 it")
        else:
            yield Finding(variable, "ok", f"{name} has the mode {status.st_mode & 0o777:04o}")


def check_quotas(inspector: Inspector) -> Iterator[Finding]:
    """A bound to what publishers can store."""
    if "/" in inspector.session.config.hosts:
        return  # they are outside of the chroot
    try:
        quotas = [quota for quota in read_quotas(inspector.session, inspector.tree) if quota.znodes or quota.bytes]
    except StoreError as error:
        yield Finding("quota", "ok", f"cannot be read: {error}")
        return
    if not quotas:
        advice = "'zkms quota --znodes N --bytes N' sets one; subscriptions have limits of their own"
        yield Finding("quota", "ok", "none: ZooKeeper keeps as much as publishers give it", advice)
    for quota in quotas:
        said = f"{quota.path}: {quota.used_znodes:,} of {_most(quota.znodes)} znodes, {quota.used_bytes:,} of "
        used = quota.znodes is not None and quota.used_znodes >= 0.9 * quota.znodes
        used = used or (quota.bytes is not None and quota.used_bytes >= 0.9 * quota.bytes)
        advice = "see 'zkms queues'; raise it with 'zkms quota'" if used else ""
        yield Finding("quota", "warning" if used else "ok", f"{said}{_most(quota.bytes)} bytes", advice)


def _most(limit: int | None) -> str:
    return "any number of" if limit is None else f"{limit:,}"
