"""`zkms quota`: ZooKeeper's quotas on what zkms keeps there, shown, set and removed."""

from __future__ import annotations

import click

from zkms.admin.quota import read_quotas, remove_quotas, set_quotas
from zkms.cli.connection import inspect
from zkms.cli.exit_codes import Exit
from zkms.cli.failure import Failure
from zkms.cli.options import CommandSettings, settings
from zkms.cli.output import print_found


@click.command()
@click.option("--znodes", type=click.IntRange(min=1), help="At most so many queue entries; and bodies, and delayed.")
@click.option("--bytes", "size", type=click.IntRange(min=1), help="At most so many bytes of bodies, and of delayed.")
@click.option("--remove", is_flag=True, help="Take the quotas away.")
@settings
def quota(settings: CommandSettings, znodes: int | None, size: int | None, remove: bool) -> None:
    """Show, set or remove ZooKeeper's quotas on queues, bodies and delayed messages.

    They are a backstop: subscriptions have limits of their own. A publisher that meets one gets QuotaExceeded, and
    nothing is stored; subscribers come, read and ack as before. ZooKeeper heeds quotas if its servers run with
    -Dzookeeper.enforceQuota=true, and else only warns in its log. A limit that is not named stays as it is.

    \b
    Examples:
      zkms quota                                    what is set, and used
      zkms quota --znodes 500000 --bytes 500000000
    """
    if remove and (znodes or size):
        raise Failure("give --remove, or what to set, not both", Exit.USAGE)
    with inspect(settings) as inspector:
        if remove:
            remove_quotas(inspector.session, inspector.tree)
        elif znodes or size:
            set_quotas(inspector.session, inspector.tree, znodes=znodes, size=size)
        found = read_quotas(inspector.session, inspector.tree)
    rows = [(q.path, q.used_znodes, q.znodes or "-", q.used_bytes, q.bytes or "-") for q in found]
    columns = ("PATH", "ZNODES", "AT MOST", "BYTES", "AT MOST")
    print_found(settings.json, found, columns, rows, empty="No quotas.")
