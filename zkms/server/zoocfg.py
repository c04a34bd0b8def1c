"""The text of a zoo.cfg, the same for an embedded and for a containerised ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping

Setting = str | int | bool


def zoo_cfg(
    *,
    data: str,
    client_port: int,
    tick_time: int = 500,
    client_address: str | None = None,
    servers: Mapping[int, str] | None = None,
    extra: Mapping[str, Setting] | None = None,
) -> str:
    """Return a zoo.cfg; `servers` maps ids to "host:quorum-port:election-port", `extra` adds or replaces settings."""
    settings: dict[str, Setting] = {
        "dataDir": data,
        "clientPort": client_port,
        "tickTime": tick_time,
        "initLimit": 20,
        "syncLimit": 5,
        # Ticks alone would give 2-20 of them; here callers get the time-out that they ask for.
        "minSessionTimeout": 1_000,
        "maxSessionTimeout": 60_000,
        "maxClientCnxns": 0,
        "admin.enableServer": False,
        "4lw.commands.whitelist": "*",
        "autopurge.snapRetainCount": 3,
        "autopurge.purgeInterval": 1,
    }
    if client_address is not None:
        settings["clientPortAddress"] = client_address
    for number, address in (servers or {}).items():
        settings[f"server.{number}"] = address
    settings.update(extra or {})
    return "".join(f"{name}={_text(value)}\n" for name, value in settings.items())


def _text(value: Setting) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
