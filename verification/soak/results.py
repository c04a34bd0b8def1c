"""The result of a scenario: one document with all measurements and the verdict."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import click
import msgspec

from verification.soak.meters import Sample
from verification.soak.verdict import Judgement
from zkms.version import __version__

MOST_SAMPLES = 100
RESULTS = Path(__file__).parent / "results"


class Document(msgspec.Struct, kw_only=True):
    """A run and its verdict."""

    scenario: str
    began: str
    """When, in local time."""
    seconds: float
    zkms: str = __version__
    python: str = platform.python_version()
    cores: int = os.cpu_count() or 1
    load_before: float = 0.0
    """The machine's load average before it began: others at work make figures lower."""
    facts: dict[str, float | int | str] = {}
    """What was measured, by name."""
    broken: list[str] = []
    """What was promised and not kept, in sentences; the run has failed if there is any."""
    judgements: list[Judgement] = []
    samples: list[Sample] = []

    @property
    def growing(self) -> list[Judgement]:
        """What did not stay flat."""
        return [each for each in self.judgements if each.growing]

    @property
    def ok(self) -> bool:
        """Whether everything stayed flat and every promise was kept."""
        return not self.broken and not self.growing


def save(document: Document, directory: Path = RESULTS) -> Path:
    """Write it as JSON, with so many of the samples as can be looked through."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{document.scenario}.json"
    thin = document.samples[:: 1 + len(document.samples) // MOST_SAMPLES]
    samples = b",\n".join(map(msgspec.json.encode, thin))
    rest = msgspec.json.format(msgspec.json.encode(msgspec.structs.replace(document, samples=[])), indent=1)
    file.write_bytes(rest.replace(b'"samples": []', b'"samples": [\n' + samples + b"\n]") + b"\n")
    return file


def show(document: Document) -> None:
    """For people."""
    click.echo(f"{document.scenario}: {document.seconds:.0f} s, load {document.load_before:.1f} before it began")
    for name, value in document.facts.items():
        text = f"{value:,}" if isinstance(value, int) else f"{value:,.3g}" if isinstance(value, float) else value
        click.echo(f"  {name:<46} {text}")
    if document.judgements:
        worst = sorted(document.judgements, key=lambda each: each.growth / each.bound, reverse=True)
        click.echo(f"  {len(worst)} series over the second half, nearest to their bounds:")
        for each in worst[:6]:
            mark = "GROWING" if each.growing else "flat"
            click.echo(f"  {mark:<8} {each.series:<37} {each.growth:+,.2f} of {each.bound:,.2f} allowed")
    for sentence in document.broken:
        click.echo(f"  BROKEN   {sentence}")
    click.echo(f"{document.scenario}: {'flat, and every promise kept' if document.ok else 'FAILED'}")
