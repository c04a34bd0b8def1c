"""`zkms bench`: how fast it is, here and now, beside the original's algorithm."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from zkms.bench.report import show
from zkms.bench.run import run
from zkms.cli.exit_codes import Exit
from zkms.cli.failure import Failure
from zkms.cli.options import CommandSettings, Seconds, settings
from zkms.cli.output import print_json

NEEDS = "'zkms bench' {what} needs {module}: pip install 'zkms[{extra}]'"


@click.command()
@settings
@click.option(
    "--suite",
    type=click.Choice(["quick", "targets", "full"]),
    default="quick",
    show_default=True,
    help="quick: half a minute; targets: all that is required, met or not; full: also curves over subscribers, "
    "topics, backlog, sizes and publishers.",
)
@click.option("--rounds", type=click.IntRange(1), help="Rounds of each measurement, in turns; medians are shown.")
@click.option("--seconds", type=Seconds(0.01, 60), help="Of each measurement; 1 in the quick suite, 3 in the others.")
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Also write a picture: FILE.png, .svg, .pdf."
)
def bench(settings: CommandSettings, suite: str, rounds: int | None, seconds: float | None, plot: Path | None) -> None:
    """Measure zkms on a ZooKeeper, beside the original's algorithm on the same.

    Without --hosts it starts a ZooKeeper of its own. On yours it works below a root of its own, which it removes
    afterwards; do not run it on one that others need now. Publishers and subscribers are separate processes.

    Ratios hold better than figures: they are taken within one run, in turns, after a warm-up.
    """
    if settings.hosts is None and (find_spec("pyspark") is None):
        raise Failure(NEEDS.format(what="without --hosts", module="an embedded ZooKeeper", extra="server"))
    if plot is not None:
        _check_plot(plot)
    document = run(suite, hosts=settings.hosts, root=settings.root, seconds=seconds, rounds=rounds)
    if plot is not None:
        from zkms.bench.plot import save

        save(document, plot)
    if settings.json:
        print_json(document)
    else:
        show(document)
    if document.failures:
        raise Failure(f"{len(document.failures)} measurement(s) failed: {next(iter(document.failures.values()))}")


def _check_plot(plot: Path) -> None:
    """Say so before minutes of measuring, not after."""
    if find_spec("matplotlib") is None:
        raise Failure(NEEDS.format(what="--plot", module="matplotlib", extra="bench"))
    from matplotlib.figure import Figure

    known = Figure().canvas.get_supported_filetypes()
    if plot.suffix.removeprefix(".") not in known:
        raise Failure(f"--plot writes {', '.join(sorted(known))}: give a file with such an ending", Exit.USAGE)
    if not plot.absolute().parent.is_dir():
        raise Failure(f"--plot: there is no directory {plot.parent}", Exit.USAGE)
