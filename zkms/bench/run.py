"""One run of a suite, from nothing to the document."""

from __future__ import annotations

import os
import platform
import time

from zkms.bench import progress, targets
from zkms.bench.processes.meter import others_at_work
from zkms.bench.processes.site import Site, open_site
from zkms.bench.report import broker_metrics
from zkms.bench.results import Document, Machine
from zkms.bench.suites import SUITES, Plan, carry_out
from zkms.version import __version__

FSYNC = "every message is in ZooKeeper's transaction log, on disk (fsync), before publish() returns"
AS_CONFIGURED = "every message is in ZooKeeper's transaction log before publish() returns; fsync as the server is set"


def run(suite: str, *, hosts: str | None, root: str, seconds: float | None, rounds: int | None) -> Document:
    """Measure; all processes are gone when this returns or raises."""
    scale = SUITES[suite]
    began = time.monotonic()
    others = others_at_work()
    with open_site(hosts, root) as site:
        document = Document(suite=suite, rounds=rounds or scale.rounds, seconds=0.0, machine=_machine(site, others))
        plan = Plan(site, suite, seconds=seconds or scale.seconds, rounds=document.rounds)
        with progress.show(len(plan.warm_up) + len(plan.trials)) as shown:
            for title, result in carry_out(plan, document):
                if result:
                    shown.end(title, result)
                else:
                    shown.begin(title)
    document.broker = broker_metrics(document)
    if suite != "quick":
        document.targets = targets.judge(document)
    document.seconds = time.monotonic() - began
    return document


def _machine(site: Site, others: str) -> Machine:
    return Machine(
        cores=os.cpu_count() or 1,
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        zkms=__version__,
        zookeeper=site.version,
        embedded=site.embedded,
        persistence=FSYNC if site.embedded else AS_CONFIGURED,
        others=others,
    )
