"""Imports zkms so that it lives in simulated worlds: its threads, locks, clocks and random names are ours.

To be called before anything of zkms is imported. What zkms itself stands on (kazoo, msgspec, logging) is imported
first and keeps the real ones. Only this process is changed, so the simulation has one of its own.
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
"""Messages in one frame at the most, or no schedule would have several frames of one call in flight."""
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
