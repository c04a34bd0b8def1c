"""`zkms demo`: all of it on this machine, in under a minute, proven while it is told."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import click

from zkms.cli.analyse.report import check_out, spark_report
from zkms.cli.failure import Failure
from zkms.cli.options import printing, trail_option
from zkms.cli.output import plural, print_json
from zkms.demo.story import DemoSummary, Story

NEXT = """\
What to do next:
  zkms server                      a ZooKeeper of your own; then, in other terminals:
  zkms sub users                   print what is published to 'users'
  zkms pub users 42 --wait 2       publish, and see who has it
  zkms queues                      what waits where; also: topics, clients, peek, purge
  zkms doctor                      is everything well?
In your program:
  with zkms.connect("127.0.0.1:2181") as bus:
      bus.subscribe("users", lambda message: cache.pop(message.data, None))
      bus.publish("users", 42).wait(2.0)"""


@click.command()
@trail_option
@click.option(
    "--report",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Let Spark analyse the trail of this run, and write the page there; needs 'zkms[spark]'.",
)
@printing
def demo(trail: str | None, report: Path | None, json_: bool) -> None:
    """Show it all in under a minute, with nothing to set up.

    Starts a ZooKeeper, three cache nodes and a cleaner on this machine, invalidates caches, kills a node and watches
    its queue being purged. Every claim is checked: the exit code is 1 if one does not hold. Leaves nothing behind but
    the --report. With --json the story goes to stderr and its figures to stdout.
    """
    if report is not None:
        check_out(report)
    began, step = time.monotonic(), 0

    def title(text: str) -> None:
        nonlocal step
        step += 1
        click.echo(f"\n{click.style(f'{step}. {text}', bold=True)}", err=json_)

    def say(text: str) -> None:
        click.echo(f"{time.monotonic() - began:6.1f} s  {text}", err=json_)

    with ExitStack() as stack:
        if report is not None and trail is None:
            trail = stack.enter_context(tempfile.TemporaryDirectory(prefix="zkms-trail-"))
        summary = Story(title, say, trail).run()
        if report is not None and trail is not None:
            title("What every message did, from the trails that the processes have left: Spark's report")
            work = spark_report()
            analysis = work.make_report((trail,), "local[*]", report)
            for line in work.told(analysis):
                say(line)
            say(f"open {report.resolve()} in a browser")
            if analysis.overall == "broken":
                raise Failure("the audit of the demo's own trail found a broken guarantee: see the report")
    if json_:
        print_json(summary)
        return
    click.echo(f"\n{click.style('In short', bold=True)}\n{_in_short(summary)}\n\n{NEXT}")


def _in_short(s: DemoSummary) -> str:
    return f"""\
  {plural(s.messages, "message")} to {s.nodes} nodes, {s.deliveries:,} deliveries, {s.stale_reads} stale reads.
  All nodes had dropped a changed user within {s.median_ms} ms (median; 99%: {s.p99_ms} ms).
  {s.killed} was killed; the {s.queued} messages that waited for it were purged {s.purged_after_s} s later,
  while the others missed nothing ({s.survivors_gaps} gaps). {s.seconds} s in all, and nothing is left behind."""
