"""`python -m benchmarks.trails [PART]...`: measure the parts, keep the results, write the page and the picture."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from benchmarks.trails import results, trials
from benchmarks.trails.page import page
from benchmarks.trails.plot import save
from benchmarks.trails.recorder import recorder
from zkms.cli.failure import interrupt_on_sigterm
from zkms.errors import ZkmsError

RESULTS = Path(__file__).parents[1] / "results"
PARTS = ("planted", "speed", "scale", "recorder")


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
@click.option("--events", type=click.IntRange(10_000), default=20_000_000, show_default=True, help="For speed.")
@click.option("--among", type=click.IntRange(10_000), default=10_000_000, show_default=True, help="For planted.")
@click.option("--each", type=click.IntRange(1), default=20, show_default=True, help="Violations of each kind.")
@click.option(
    "--sizes",
    type=click.IntRange(10_000),
    multiple=True,
    default=(10_000_000, 100_000_000),
    show_default=True,
    help="For scale.",
)
@click.option("--messages", type=click.IntRange(1), default=20_000, show_default=True, help="Of a round of recorder.")
@click.option("--rounds", type=click.IntRange(1), default=30, show_default=True, help="Of recorder.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep generated trails here, for again.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=RESULTS, help="Where trails.md, .json, .png go."
)
def main(
    parts: tuple[str, ...],
    events: int,
    among: int,
    each: int,
    sizes: tuple[int, ...],
    messages: int,
    rounds: int,
    keep: Path | None,
    out: Path,
) -> None:
    """Measure how the analysis of trails scales: all PARTS (planted, speed, scale, recorder), or those.

    A hundred million events take 2 GB of disk and a quarter of an hour, most of it to generate them, on two cores that
    have nothing else to do.
    """
    interrupt_on_sigterm()
    out.mkdir(parents=True, exist_ok=True)
    file = out / "trails.json"

    def say(line: str) -> None:
        click.echo(line, err=True)

    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zkms-trails-")))
        for part in [part for part in PARTS if part in (parts or PARTS)]:
            say(f"{part}:")
            known = results.load(file)
            try:
                if part == "speed":
                    known.speed = trials.speed(events, folder, say)
                elif part == "planted":
                    known.planted = trials.planted(among, each, folder, say)
                elif part == "scale":
                    known.scale = trials.scale(sizes, folder, say)
                else:
                    known.recorder = recorder(messages, rounds, say)
            except ZkmsError as error:
                raise click.ClickException(str(error)) from error
            results.save(known, file)
            (out / "trails.md").write_text(page(known))
            save(known, out / "trails.png")
    click.echo(page(results.load(file)))


if __name__ == "__main__":
    main()
