"""The options of the data source, checked: each wrong one has its sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from zkms import Bus, InvalidArgument, Tls, connect
from zkms.checks import check_seconds
from zkms.config import Config
from zkms.names import check_name, check_subscription, check_topic
from zkms.replay.stage import DEFAULT_BYTES
from zkms.trail import Trail

KNOWN = (
    *("hosts", "root", "topic", "id", "if_nobody", "max_staged_bytes", "timeout"),
    *("user", "password", "tls_ca", "tls_cert", "tls_key", "read", "trail"),
    *("name", "maxMessagesPerBatch", "failOnDataLoss", "partitions", "takeover"),
)
OF_SPARK = ("path", "checkpointlocation", "queryname")
"""What Spark hands over besides."""
DEFAULT_MESSAGES = 10_000
FLUSH = 0.02
"""Seconds after which lines of a trail are written: Spark kills the process of a query that is stopped."""


@dataclass(frozen=True)
class Options:
    """Made of strings, as Spark has them; `InvalidArgument` says which is wrong."""

    hosts: str
    root: str = "/zkms"
    topic: str | None = None
    id: str | None = None
    if_nobody: Literal["raise", "drop"] = "raise"
    max_staged_bytes: int = DEFAULT_BYTES
    timeout: float = 60.0
    auth: tuple[str, str] | None = None
    tls: Tls | None = None
    read: str | None = None
    trail: str | None = None
    """Where what is published, and what a stream has done with, is recorded: a directory of the driver."""
    name: str | None = None
    max_messages: int = DEFAULT_MESSAGES
    strict: bool = True
    """Whether a stream ends where messages were removed that it has not read."""
    partitions: int = 1
    takeover: bool = False

    @classmethod
    def of(cls, said: Mapping[str, str]) -> Options:
        """Check what was given; case makes no difference, as for all of Spark's options."""
        known = {name.lower() for name in KNOWN} | {*OF_SPARK}
        given = {name.lower(): value for name, value in said.items()}
        for name in said:
            if name.lower() not in known:
                raise InvalidArgument(f"unknown option {name!r}: there are {', '.join(KNOWN)}")
        if given.get("path"):
            raise InvalidArgument("zkms has no paths: give the topic as an option, and call save() without one")
        hosts = given.get("hosts")
        if not hosts:
            raise InvalidArgument("say where ZooKeeper is: .option('hosts', 'zk1:2181,zk2:2181')")
        if bool(given.get("user")) != bool(given.get("password")):
            raise InvalidArgument("give both options user and password, or neither")
        topic, job, nobody = given.get("topic"), given.get("id"), given.get("if_nobody", "raise")
        subscription = given.get("name")
        if nobody not in ("raise", "drop"):
            raise InvalidArgument(f"if_nobody is 'raise' or 'drop', not {nobody!r:.60}")
        ca, cert, key = (given.get(f"tls_{name}") for name in ("ca", "cert", "key"))
        options = cls(
            hosts=hosts,
            root=given.get("root", cls.root),
            topic=None if topic is None else check_topic(topic),
            id=None if job is None else check_name("id", job),
            if_nobody="drop" if nobody == "drop" else "raise",
            max_staged_bytes=_number("max_staged_bytes", given.get("max_staged_bytes", str(DEFAULT_BYTES))),
            timeout=_seconds(given.get("timeout", str(cls.timeout))),
            auth=("digest", f"{given['user']}:{given['password']}") if given.get("user") else None,
            tls=Tls(ca=ca, cert=cert, key=key) if ca or cert or key else None,
            read=given.get("read"),
            trail=given.get("trail"),
            name=None if subscription is None else check_subscription("name", subscription),
            max_messages=_number("maxMessagesPerBatch", given.get("maxmessagesperbatch", str(DEFAULT_MESSAGES))),
            strict=_flag("failOnDataLoss", given.get("failondataloss", "true")),
            partitions=_number("partitions", given.get("partitions", "1")),
            takeover=_flag("takeover", given.get("takeover", "false")),
        )
        options.config()  # says what is wrong with hosts and root
        return options

    def config(self) -> Config:
        """For a session that shows up nowhere."""
        auth = () if self.auth is None else (self.auth,)
        return Config(hosts=self.hosts, root=self.root, cleaner=False, auth=auth, tls=self.tls)

    def connect(self, producer: str | None = None) -> Bus:
        """As the producer of this name, if it is to publish: then a trail has one node for all commits of a job."""
        return connect(
            self.hosts,
            self.root,
            producer=producer,
            client_id=producer if self.trail else None,
            cleaner=False,
            auth=self.auth,
            tls=self.tls,
            trail=None if self.trail is None else Trail(directory=self.trail, flush=FLUSH),
        )


def _number(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and int(value) > 0):
        raise InvalidArgument(f"{name} must be a whole number of at least 1, not {value!r:.60}")
    return int(value)


def _flag(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise InvalidArgument(f"{name} is 'true' or 'false', not {value!r:.60}")
    return value.lower() == "true"


def _seconds(value: str) -> float:
    try:
        return check_seconds("timeout", float(value))
    except ValueError as error:
        raise InvalidArgument(f"timeout must be a number of seconds, not {value!r:.60}") from error
