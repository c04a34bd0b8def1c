"""The command line: parses, calls the library and prints.

group        lazy loading, endings         options      --hosts, --root, --json, -v
exit_codes   the table                     connection   servers and credentials from options and environment
failure      errors as sentences           output       tables, JSON, text that is safe to show

Every command is a file of its own name, in `messages`, `inspect`, `operate` or `analyse`. May import every room;
only bench imports from here. Read `group` first.
"""

from __future__ import annotations

from typing import Any

import click

from zkms.cli.group import Lazy, LazyGroup
from zkms.cli.options import HOSTS_HELP, JSON_HELP, ROOT_HELP, VERBOSE_HELP
from zkms.version import __version__

COMMANDS = {
    "demo": Lazy("zkms.cli.analyse.demo:demo", "Show it all in under a minute, with nothing to set up."),
    "server": Lazy("zkms.cli.operate.server:server", "Run a ZooKeeper on this machine until Ctrl-C."),
    "pub": Lazy("zkms.cli.messages.pub:pub", "Publish messages to a topic."),
    "sub": Lazy("zkms.cli.messages.sub:sub", "Print the messages of a topic, or hand each to a command or a URL."),
    "topics": Lazy("zkms.cli.inspect.topics:topics", "List topics."),
    "clients": Lazy("zkms.cli.inspect.clients:clients", "List the processes that are connected."),
    "queues": Lazy("zkms.cli.inspect.queues:queues", "List queues and how much waits in them."),
    "groups": Lazy("zkms.cli.inspect.groups:groups", "List durable subscriptions and groups: members, owners, lag."),
    "top": Lazy("zkms.cli.inspect.top:top", "Watch topics, groups and members at work, live."),
    "peek": Lazy("zkms.cli.messages.peek:peek", "Show what waits in a queue, and leave it there."),
    "purge": Lazy("zkms.cli.messages.purge:purge", "Remove what waits in a queue."),
    "unsubscribe": Lazy(
        "zkms.cli.messages.unsubscribe:unsubscribe", "Give up a durable subscription or a group for good."
    ),
    "dead": Lazy("zkms.cli.messages.dead:dead", "See dead letters and why they are; requeue or purge them."),
    "cleaner": Lazy("zkms_cleaner.daemon:main", "Purge what dead subscribers have left behind."),
    "backup": Lazy(
        "zkms.cli.operate.backup:backup", "Write what is kept into one file: queues, delayed, dead letters."
    ),
    "restore": Lazy("zkms.cli.operate.backup:restore", "Put back what is in a backup."),
    "trail": Lazy("zkms.cli.analyse.trail:trail", "Export what processes have recorded, or generate a trail."),
    "report": Lazy("zkms.cli.analyse.report:report", "Analyse a trail with Spark, into one HTML file."),
    "access": Lazy("zkms.cli.operate.access:access", "Make a tree of separate roles; see who has which."),
    "quota": Lazy("zkms.cli.operate.quota:quota", "Bound what ZooKeeper keeps for zkms, whatever publishers do."),
    "bench": Lazy("zkms.cli.analyse.bench:bench", "Measure how fast it is, beside the original's algorithm."),
    "doctor": Lazy("zkms.cli.operate.doctor:doctor", "Check ZooKeeper and the tree, and say what to do."),
}


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="'zkms COMMAND --help' tells more. Options may stand before or after the command's name.",
)
@click.option("--hosts", metavar="HOST:PORT,...", help=HOSTS_HELP)
@click.option("--root", metavar="PATH", help=ROOT_HELP)
@click.option("--json", "json_", is_flag=True, help=JSON_HELP)
@click.option("-v", "--verbose", count=True, help=VERBOSE_HELP)
@click.version_option(__version__, prog_name="zkms", message="%(prog)s %(version)s")
def main(**_passed_on: Any) -> None:
    """Notifications between the nodes of a service, on the ZooKeeper it already runs.

    \b
    Try it:
      zkms demo                      see it work
      zkms server                    a ZooKeeper to play with; then, in other terminals:
      zkms sub news                  wait for messages
      zkms pub news hello            send one

    \b
    Credentials come from the environment or a file, never from the command line:
      ZKMS_AUTH=digest:USER:PASSWORD       (or sasl:...), or ZKMS_AUTH_FILE=FILE with such a line
      ZKMS_TLS_CA, ZKMS_TLS_CERT, ZKMS_TLS_KEY   files, each in PEM format; ZKMS_TLS_KEY_PASSWORD
    """
