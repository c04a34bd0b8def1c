"""The ZooKeeper server's jars, which pyspark carries: found without importing pyspark."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from zkms.server.errors import ServerError

MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

# Prefixes of what the server loads; the rest of pyspark's 300 jars would only make it slower to start.
_NEEDED = (
    "zookeeper-3",
    "zookeeper-jute-",
    "netty-",
    "slf4j-api-",
    "log4j-api-",
    "log4j-core-",
    "log4j-slf4j2-impl-",
    "snappy-java-",
    "metrics-core-",
    "commons-io-",
)


def server_jars() -> list[Path]:
    """Return the jars of a ZooKeeper server, in a stable order."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ServerError("the ZooKeeper server's jars come with pyspark: `pip install zkms[server]`")
    directory = Path(spec.origin).parent / "jars"
    jars = [jar for prefix in _NEEDED for jar in sorted(directory.glob(f"{prefix}*.jar"))]
    missing = [prefix for prefix in _NEEDED if not any(jar.name.startswith(prefix) for jar in jars)]
    if missing:
        raise ServerError(
            f"{directory} has no {missing[0]}*.jar: this pyspark carries no ZooKeeper server, "
            "so install one that does with `pip install zkms[server]`"
        )
    return jars


def server_version(jars: list[Path]) -> str:
    """Return the ZooKeeper version that the jars' names tell."""
    for jar in jars:
        if match := re.fullmatch(r"zookeeper-(\d[\w.-]*)\.jar", jar.name):
            return match[1]
    raise ServerError("no zookeeper-*.jar among the server's jars")
