"""`zkms access`: who is producer, subscriber and cleaner in a tree of separate roles."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from zkms.cli.connection import inspect, open_bus
from zkms.cli.exit_codes import Exit
from zkms.cli.failure import Failure
from zkms.cli.options import CommandSettings, settings
from zkms.cli.output import print_found, print_json
from zkms.security import Access, masked


class _Roles(msgspec.Struct, forbid_unknown_fields=True):
    """What `init` reads."""

    producers: list[str]
    subscribers: list[str]
    cleaners: list[str]


@click.group()
def access() -> None:
    """Separate roles: producers that cannot read queues, subscribers that read only their own, and cleaners.

    \b
    Examples, each with the credentials of who does it in ZKMS_AUTH_FILE:
      zkms access identity            how ACLs call whoever has these credentials
      zkms access init roles.json     make the tree, as a cleaner; once
      zkms access show                who has which role

    \b
    roles.json:
      {"producers": ["digest:billing:HASH"], "subscribers": ["digest:web:HASH"], "cleaners": ["sasl:ops"]}
    """


@access.command()
@settings
def identity(settings: CommandSettings) -> None:
    """Print the identities of the credentials in the environment, one a line, as roles.json takes them.

    That of digest has a hash of the password in it: who sees it can try to guess a weak one.
    """
    with inspect(settings) as inspector:
        found = sorted(inspector.session.identities())
    if settings.json:
        print_json([{"identity": each} for each in found])
    else:
        click.echo("\n".join(found) or "none: ZooKeeper does not know who this is")


@access.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@settings
def init(settings: CommandSettings, file: Path) -> None:
    """Make the tree with the roles in FILE; the credentials have to be those of one of its cleaners."""
    try:
        roles = msgspec.json.decode(file.read_bytes(), type=_Roles)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:  # msgspec lets the second through
        raise Failure(f"{file}: {error}", Exit.USAGE) from error
    policy = Access(producers=roles.producers, subscribers=roles.subscribers, cleaners=roles.cleaners)
    open_bus(settings, cleaner=False, access=policy).close()
    click.echo(f"{settings.root} is made for these roles.")


@access.command()
@settings
def show(settings: CommandSettings) -> None:
    """Print who has which role, without hashes."""
    with inspect(settings) as inspector:
        rights = inspector.session.rights
        mine = inspector.session.identities()
    rows = [] if rights is None else [(r, i) for r, identities in rights.access.record().items() for i in identities]
    found = [{"role": role.removesuffix("s"), "identity": masked(i), "you": i in mine} for role, i in rows]
    table = [(role.removesuffix("s"), masked(i), "you" if i in mine else "") for role, i in rows]
    print_found(settings.json, found, ("ROLE", "IDENTITY", ""), table, empty="This tree has no separate roles.")
