"""The command line of the simulation: which schedules, on how many processors, and what they showed."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections import Counter

import click

from simulation.run import WORKLOADS, Outcome, collect, run, shrink

COLLECT = 25
"""Schedules after which memory is looked after."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seeds", type=click.IntRange(1), default=200, show_default=True, help="How many schedules of each workload.")
@click.option("--first", type=click.IntRange(0), default=0, show_default=True, help="The first seed.")
@click.option("--seed", type=click.IntRange(0), help="Only this one: a replay.")
@click.option("--workload", "workloads", type=click.Choice(list(WORKLOADS)), multiple=True, help="Only these.")
@click.option("--faults", help="Only these of the seed's faults, by place: 0,2. 'none' for none.")
@click.option("--stride", type=click.IntRange(1), default=1, hidden=True)
@click.option("-v", "--verbose", is_flag=True, help="Show the library's log.")
def main(
    seeds: int, first: int, seed: int | None, workloads: tuple[str, ...], faults: str | None, stride: int, verbose: bool
) -> None:
    """Run zkms' real code in simulated worlds, each a schedule that its seed decides, and check what it promises.

    Ends with 1 if a promise was broken; what it prints then replays that schedule exactly.
    """
    logging.basicConfig(level=logging.DEBUG if verbose else logging.CRITICAL, format="%(name)s: %(message)s")
    names = workloads or tuple(WORKLOADS)
    numbers = [seed] if seed is not None else list(range(first, first + seeds, stride))
    began, counted, broken = time.perf_counter(), Counter[str](), 0
    for done, number in enumerate(numbers, 1):
        for name in names:
            outcome = run(name, number) if faults is None else _replay(name, number, faults)
            counted["schedules"] += 1
            counted["steps"] += outcome.steps
            counted["faults"] += len(outcome.faults)
            counted["stored"] += outcome.stored
            counted["transactions"] += outcome.transactions
            if outcome.problems:
                broken += 1
                _show(outcome if faults is not None else shrink(outcome), len(outcome.faults))
        if not done % COLLECT:
            collect()
            if sys.stderr.isatty():
                click.echo(f"\r{done:,} of {len(numbers):,} seeds, {broken} broken", nl=False, err=True)
    seconds = time.perf_counter() - began
    click.echo(
        f"{counted['schedules']:,} schedules ({', '.join(names)}), {counted['faults']:,} faults, {counted['stored']:,} messages, "
        f"{counted['transactions']:,} transactions, {counted['steps']:,} steps in {seconds:.1f} s: {broken} broken"
    )
    if broken:
        raise SystemExit(1)


def _replay(name: str, seed: int, faults: str) -> Outcome:
    whole = run(name, seed, faults=None)
    places = [] if faults == "none" else [int(place) for place in faults.split(",")]
    return run(name, seed, faults=[whole.faults[place] for place in places])


def _show(outcome: Outcome, of: int) -> None:
    whole = run(outcome.workload, outcome.seed)
    places = ",".join(str(whole.faults.index(fault)) for fault in outcome.faults) or "none"
    click.echo(f"\nBROKEN: {outcome.workload}, seed {outcome.seed}, {len(outcome.faults)} of {of} faults needed")
    for fault in outcome.faults:
        click.echo(f"  {fault}")
    for problem in outcome.problems[:5]:
        click.echo(f"  -> {problem}")
    click.echo(f"  replay: python -m simulation --workload {outcome.workload} --seed {outcome.seed} --faults {places}")
