"""Imports zkms with simulated threads, locks, clocks and random names.

Call it before anything of zkms is imported. The libraries of zkms (kazoo, msgspec, logging) are imported first and keep
the real ones. It changes the whole process, so the simulation runs in its own.
"""

from __future__ import annotations

import importlib
import sys

from verification.simulation import primitives

BELOW = ("kazoo.client", "kazoo.handlers.threading", "kazoo.retry", "kazoo.security", "msgspec", "logging", "click")
ABOVE = (
    "zkms",
    "zkms.bus",
    "zkms.cache",
    "zkms.zookeeper.probe",
    "zkms.zookeeper.kazoo_client",
    "zkms.zookeeper.session",
    "zkms.trail.recorder",
    "zkms_cleaner",
    "zkms_cleaner.cleaner",
    "zkms_cleaner.delays",
)
FRAME = 3
"""The most messages in one frame: so few that one call has several frames in flight."""
DISGUISED = {
    "threading": primitives.threading_module,
    "time": primitives.time_module,
    "secrets": primitives.secrets_module,
    "concurrent.futures": primitives.futures_module,
}


def disguise() -> None:
    """Import zkms with the simulated modules in place of Python's."""
    for name in BELOW:
        importlib.import_module(name)
    known = [name for name in sys.modules if name.partition(".")[0] in ("zkms", "zkms_cleaner")]
    if known:
        raise RuntimeError(f"{known[0]} was imported before the simulation began")
    real = {name: sys.modules[name] for name in DISGUISED}
    sys.modules.update(DISGUISED)
    try:
        for name in ABOVE:
            importlib.import_module(name)
    finally:
        sys.modules.update(real)
    from verification.simulation import link

    vars(sys.modules["zkms.zookeeper.session"]).update(
        Connection=link.SimulatedConnection,
        Client=link.Client,
        diagnose=lambda _hosts, _tls: "nothing in this world answers",
    )
    vars(sys.modules["zkms.publish.budget"])["MAX_PER_FRAME"] = FRAME
