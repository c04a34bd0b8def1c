"""From the command line to ZooKeeper: which servers, with which credentials."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from zkms.admin.discovery import Discovery
from zkms.bus import Bus
from zkms.cli.exit_codes import Exit
from zkms.cli.failure import Failure
from zkms.cli.options import CommandSettings
from zkms.config import DEFAULT_HOSTS, Config
from zkms.connect import connect
from zkms.security import Access, Auth, Sasl, Tls, parse_auth
from zkms.tree.layout import adopt_policy
from zkms.tree.paths import Tree
from zkms.zookeeper.recipes import children_of
from zkms.zookeeper.session import Session

CONNECT_TIMEOUT = 5.0


def find_hosts(settings: CommandSettings) -> str:
    """The servers that were named, or the one on this machine's default port if it runs."""
    if settings.hosts:
        return settings.hosts
    host, port = DEFAULT_HOSTS.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=1.0).close()
    except OSError as error:
        raise Failure(
            f"no ZooKeeper answers on {DEFAULT_HOSTS}: start one with 'zkms server', "
            "or name yours with --hosts or ZKMS_HOSTS",
            Exit.NO_ZOOKEEPER,
        ) from error
    return DEFAULT_HOSTS


def read_auth(environ: Mapping[str, str] = os.environ) -> list[Auth | Sasl] | None:
    """Credentials from ZKMS_AUTH, or from the lines of the file ZKMS_AUTH_FILE; None if neither is set.

    A file of ours that others can read is refused, as ssh refuses such a key: what is in it may be known to them.
    """
    lines, source = [environ.get("ZKMS_AUTH", "")], "ZKMS_AUTH"
    if name := secret_files(environ).get("ZKMS_AUTH_FILE"):
        source = f"ZKMS_AUTH_FILE ({name})"
        try:
            with Path(name).open() as file:
                _refuse_exposed(source, os.fstat(file.fileno()))
                lines = file.read().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise Failure(f"{source} cannot be read: {getattr(error, 'strerror', None) or 'not text'}") from error
    pairs: list[Auth | Sasl] = []
    for line in filter(None, map(str.strip, lines)):
        scheme, _, credential = line.partition(":")
        if not scheme or ":" not in credential:
            raise Failure(f"{source} must be SCHEME:USER:PASSWORD, such as digest:ann:secret", Exit.USAGE)
        user, _, password = credential.partition(":")
        pairs.append(Sasl(username=user, password=password) if scheme == "sasl" else (scheme, credential))
    return pairs or None


def secret_files(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The files with secrets that are used, by the variable that names them."""
    variables = ("ZKMS_TLS_KEY",) if environ.get("ZKMS_AUTH") else ("ZKMS_AUTH_FILE", "ZKMS_TLS_KEY")
    return {variable: environ[variable] for variable in variables if environ.get(variable)}


def exposure(status: os.stat_result) -> str:
    """What is wrong with a file of ours that others can read; nothing if they cannot.

    What somebody else has put there for us is theirs to protect.
    """
    mode = status.st_mode & 0o777
    exposed = mode & 0o077 and status.st_uid == os.getuid()
    return f"can be read by others, its mode being {mode:04o}" if exposed else ""


def _refuse_exposed(source: str, status: os.stat_result) -> None:
    if fault := exposure(status):
        raise Failure(f"{source} {fault}: chmod 600 it")


def read_tls(environ: Mapping[str, str] = os.environ) -> Tls | None:
    """TLS as ZKMS_TLS_CA, ZKMS_TLS_CERT, ZKMS_TLS_KEY and its password say; None if no file is named.

    A key of ours that others can read is refused, as is a file with credentials.
    """
    ca, cert, key = (environ.get(f"ZKMS_TLS_{what}") or None for what in ("CA", "CERT", "KEY"))
    password = environ.get("ZKMS_TLS_KEY_PASSWORD") or None
    if key is not None:
        with suppress(OSError):  # said where it is read
            _refuse_exposed(f"ZKMS_TLS_KEY ({key})", Path(key).stat())
    return Tls(ca=ca, cert=cert, key=key, key_password=password) if ca or cert or key else None


def open_bus(
    settings: CommandSettings, *, cleaner: bool, trail: str | None = None, access: Access | None = None
) -> Bus:
    """Connect as a client that publishes or subscribes."""
    return connect(
        find_hosts(settings),
        root=settings.root,
        auth=read_auth(),
        tls=read_tls(),
        cleaner=cleaner,
        trail=trail,
        access=access,
        connect_timeout=CONNECT_TIMEOUT,
    )


class Inspector:
    """A look at the tree from outside: makes nothing, and does not show up among the clients."""

    def __init__(self, session: Session, tree: Tree) -> None:
        self.session = session
        self.tree = tree
        self.discovery = Discovery(session, tree)

    def names(self, path: str) -> list[str]:
        """The children of a znode, sorted; none if it does not exist."""
        return children_of(self.session, path)


@contextmanager
def inspect(settings: CommandSettings) -> Iterator[Inspector]:
    """Connect to look at, or to mend, what is there."""
    with closing(Session(inspection_config(settings))) as session:
        session.start()
        tree = Tree(session.config.root)
        adopt_policy(session, tree)
        yield Inspector(session, tree)


def inspection_config(settings: CommandSettings) -> Config:
    """How to connect for that."""
    pairs, sasl = parse_auth(read_auth())
    return Config(
        hosts=find_hosts(settings),
        root=settings.root,
        auth=pairs,
        sasl=sasl,
        tls=read_tls(),
        cleaner=False,
        connect_timeout=CONNECT_TIMEOUT,
    )
