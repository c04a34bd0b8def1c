"""The command line of the simulation: runs schedules in several processes, and prints the results."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable

import click
import msgspec

from verification.simulation.faults import Fault
from verification.simulation.mechanisms import MECHANISMS
from verification.simulation.run import WORKLOADS, Outcome, collect, run, shrink

COLLECT = 25
"""Seeds after which memory is freed and progress is printed."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seeds", type=click.IntRange(1), default=200, show_default=True, help="Schedules of each workload.")
@click.option("--first", type=click.IntRange(0), default=0, show_default=True, help="The first seed.")
@click.option("--seed", type=click.IntRange(0), help="Only this one: a replay.")
@click.option("--workload", "workloads", type=click.Choice(list(WORKLOADS)), multiple=True, help="Only these.")
@click.option("--faults", metavar="PLACES", help="Only these of the seed's faults: 0,2 or 'none'.")
@click.option("--without", "mechanism", type=click.Choice(list(MECHANISMS)), help="Take this away, and see it missed.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes that share the seeds.")
@click.option("--counts", is_flag=True, hidden=True, help="End with the counts as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show the library's log.")
def main(
    seeds: int,
    first: int,
    seed: int | None,
    workloads: tuple[str, ...],
    faults: str | None,
    mechanism: str | None,
    jobs: int,
    counts: bool,
    verbose: bool,
) -> None:
    """Run zkms' real code in simulated worlds, whose schedule a seed determines, and check its promises.

    Ends with 1 if a promise was broken, and prints the command that replays that schedule. With --without it ends at
    the first broken promise, and with 1 if there is none.
    """
    logging.basicConfig(level=logging.DEBUG if verbose else logging.CRITICAL, format="%(name)s: %(message)s")
    names = workloads or ((MECHANISMS[mechanism].workload,) if mechanism else tuple(WORKLOADS))
    numbers = range(seed, seed + 1) if seed is not None else range(first, first + seeds)
    began = time.perf_counter()
    if faults is not None and seed is None:
        raise click.UsageError("--faults are those of one seed: give --seed too")
    options = [*([f"--without={mechanism}"] if mechanism else []), *(["--verbose"] if verbose else [])]
    shared = jobs > 1 and len(numbers) > 1
    counted = _share(numbers, names, jobs, options) if shared else _run(numbers, names, faults, mechanism)
    if counts:
        click.echo(msgspec.json.encode(counted).decode())
        return
    seconds = time.perf_counter() - began
    click.echo(
        f"{counted['schedules']:,} schedules ({', '.join(names)}), {counted['faults']:,} faults, "
        f"{counted['stored']:,} messages, {counted['transactions']:,} transactions, {counted['steps']:,} steps "
        f"in {seconds:.1f} s: {counted['broken']} broken"
    )
    if bool(counted["broken"]) != (mechanism is not None):
        raise SystemExit(1)


def _run(numbers: Iterable[int], names: Iterable[str], faults: str | None, mechanism: str | None) -> Counter[str]:
    counted = Counter[str](broken=0)
    for done, number in enumerate(numbers, 1):
        for name in names:
            outcome = run(name, number, mechanism=mechanism)
            whole = outcome.faults
            if faults is not None:
                outcome = run(name, number, faults=_some(whole, faults), mechanism=mechanism)
            counted["schedules"] += 1
            counted["steps"] += outcome.steps
            counted["faults"] += len(outcome.faults)
            counted["stored"] += outcome.stored
            counted["transactions"] += outcome.transactions
            if outcome.problems:
                counted["broken"] += 1
                _show(shrink(outcome, mechanism) if faults is None else outcome, whole, mechanism)
                if mechanism is not None:
                    return counted
        if not done % COLLECT:
            collect()
            if sys.stderr.isatty():
                click.echo(f"\r{done:,} seeds, {counted['broken']} broken ", nl=False, err=True)
    return counted


def _some(faults: list[Fault], places: str) -> list[Fault]:
    """Return the selected faults of a seed."""
    try:
        return [] if places == "none" else [faults[int(place)] for place in places.split(",")]
    except (ValueError, IndexError) as error:
        raise click.UsageError(
            f"--faults {places}: this seed has {len(faults)}; give places from 0, or none"
        ) from error


def _share(numbers: range, names: Iterable[str], jobs: int, options: list[str]) -> Counter[str]:
    """Run several processes, each with a part of the seeds."""
    part = -(-len(numbers) // jobs)
    command = [
        sys.executable,
        "-m",
        "verification.simulation",
        "--counts",
        *(f"--workload={name}" for name in names),
        *options,
    ]
    started = [
        subprocess.Popen([*command, f"--first={some[0]}", f"--seeds={len(some)}"], stdout=subprocess.PIPE, text=True)
        for some in (numbers[place : place + part] for place in range(0, len(numbers), part))
    ]
    total = Counter[str](broken=0)
    for process in started:
        lines = process.communicate()[0].splitlines()
        if process.returncode:
            raise click.ClickException(f"a process ended with {process.returncode}")
        for line in lines[:-1]:
            click.echo(line)
        total.update(msgspec.json.decode(lines[-1], type=dict[str, int]))
    return total


def _show(outcome: Outcome, whole: list[Fault], mechanism: str | None) -> None:
    places = ",".join(str(whole.index(fault)) for fault in outcome.faults) or "none"
    gone = f" --without {mechanism}" if mechanism else ""
    click.echo(f"BROKEN: {outcome.workload}, seed {outcome.seed}, {len(outcome.faults)} of {len(whole)} faults needed")
    for fault in outcome.faults:
        click.echo(f"  {fault}")
    for problem in outcome.problems[:5]:
        click.echo(f"  -> {problem}")
    click.echo(
        f"  replay: python -m verification.simulation --workload {outcome.workload} --seed {outcome.seed}"
        f" --faults {places}{gone}"
    )
