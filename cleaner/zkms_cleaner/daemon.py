"""zkms-cleaner, also `zkms cleaner`: the cleaner as a process of its own."""

from __future__ import annotations

import logging
import signal
import threading
from functools import partial
from types import FrameType
from typing import Any

import click

from zkms.bus import Bus
from zkms.cli.connection import read_auth, read_tls
from zkms.cli.exit_codes import Exit
from zkms.cli.failure import Failure, as_failure, interrupt_on_sigterm
from zkms.cli.options import seconds_option, trail_option
from zkms.config import DEFAULT_HOSTS, Config, as_trail
from zkms.connect import connect
from zkms.errors import ConnectionLost, ZkmsError
from zkms.security import parse_auth
from zkms.version import __version__
from zkms_cleaner import oneshot
from zkms_cleaner.cleaner import GRACE, INTERVAL, Cleaner
from zkms_cleaner.notify import notify, watchdog_seconds

log = logging.getLogger("zkms.cleaner")
CONNECT_TIMEOUT = 5.0
RETRY = 2.0
LEVELS = ("debug", "info", "warning", "error")


class Daemon:
    """Connects, cleans and reports until it is told to stop."""

    def __init__(self, options: dict[str, Any], **sweeps: Any) -> None:
        """`options` are those of connect(), `sweeps` those of `Cleaner`."""
        self._options = options
        self._sweeps = sweeps
        self._cleaner: Cleaner | None = None
        self._stop = threading.Event()
        self._status = ""

    @property
    def leading(self) -> bool:
        """Whether this one does the work."""
        return self._cleaner is not None and self._cleaner.leading

    def healthy(self) -> bool:
        """Whether there is hope: also while ZooKeeper cannot be reached."""
        return self._cleaner is None or self._cleaner.alive

    def ready(self) -> bool:
        """Whether it is connected and a candidate."""
        return self._cleaner is not None and self._cleaner.standing

    def stop(self) -> None:
        """Come to an end soon; may be called by a signal handler."""
        self._stop.set()

    def run(self, hooks: dict[str, Any]) -> None:
        """Work until stop(). A session that is dead for good raises: whoever supervises us starts us again."""
        bus = self._connect()
        if bus is None:
            return
        with bus:
            if bus.parts.session.rights is not None and not bus.parts.session.rights.cleans:
                raise Failure("this tree has separate roles, and these credentials are not those of a cleaner")
            session, tree, trail = bus.parts.session, bus.parts.tree, bus.parts.context.trail
            self._cleaner = Cleaner(session, tree, bus.client_id, trail=trail, **self._sweeps, **hooks)
            self._cleaner.start()
            notify("READY=1")
            tick = min(1.0, (watchdog_seconds() or 60.0) / 3)
            while not self._stop.wait(tick):
                if not self._cleaner.alive:
                    raise Failure(f"the session is {bus.parts.session.state.value}, for good: start the cleaner again")
                self._say("leads" if self.leading else "stands for election" if self.ready() else "not connected")
                notify("WATCHDOG=1")
            notify("STOPPING=1")
            log.info("stopping")
            self._cleaner.close()

    def _connect(self) -> Bus | None:
        while not self._stop.is_set():
            try:
                return connect(**self._options, cleaner=False, connect_timeout=CONNECT_TIMEOUT)
            except ConnectionLost as error:
                # A daemon outlives outages, one at its start included.
                log.warning("%s; trying on", error)
                notify("READY=1", "WATCHDOG=1")
                self._say("waiting for ZooKeeper")
                self._stop.wait(RETRY)
        notify("STOPPING=1")
        return None

    def _say(self, status: str) -> None:
        if status != self._status:
            notify(f"STATUS={status}")
        self._status = status


def _serve(daemon: Daemon, interval: float, metrics_host: str, metrics_port: int | None) -> None:
    hooks: dict[str, Any] = {}
    web = None
    if metrics_port is not None:
        try:
            from zkms_cleaner.metrics import Metrics
            from zkms_cleaner.web import Web
        except ModuleNotFoundError as error:
            raise Failure(f"--metrics-port needs {error.name}: pip install 'zkms[cleaner]'") from error
        metrics = Metrics(lambda: daemon.leading)
        hooks = {"swept": metrics.swept, "failed": metrics.failed}
        try:
            web = Web(metrics_host, metrics_port, metrics.registry, healthy=daemon.healthy, ready=daemon.ready)
        except OSError as error:
            raise Failure(f"cannot listen on {metrics_host}:{metrics_port}: {error.strerror or error}") from error
        log.info("serving %s/metrics, /healthz and /readyz", web.url)
    log.info("zkms-cleaner %s: sweeps every %g s when it leads", __version__, interval)
    try:
        daemon.run(hooks)
    finally:
        if web is not None:
            web.close()
    log.info("stopped")


_EPILOG = """
\b
Examples:
  zkms-cleaner --hosts zk1:2181,zk2:2181 --metrics-port 9102
  zkms-cleaner --dry-run                 what would be purged, and why
  zkms-cleaner --once --grace 0 --json   purge now, for a script

\b
Credentials come from the environment or a file, never from the command line:
  ZKMS_AUTH=digest:USER:PASSWORD       or ZKMS_AUTH_FILE=FILE with such a line
  ZKMS_TLS_CA, ZKMS_TLS_CERT, ZKMS_TLS_KEY   files, each in PEM format

\b
Exit codes:
  0    done; for the daemon: told to stop by SIGTERM or SIGINT
  1    an error, said in one sentence
  2    wrong usage
  3    --once, --dry-run: no ZooKeeper answers (the daemon keeps trying)
  4    --once: another cleaner leads and did not give way in time; nothing was changed
  130  --once, --dry-run: interrupted
"""


_option = partial(click.option, show_envvar=True, show_default=True)
_seconds = partial(seconds_option, show_envvar=True)


@click.command(
    "cleaner", epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@_option("--hosts", metavar="HOST:PORT,...", envvar="ZKMS_HOSTS", default=DEFAULT_HOSTS, help="ZooKeeper's servers.")
@_option("--root", metavar="PATH", envvar="ZKMS_ROOT", default="/zkms", help="Znode that everything is below.")
@_seconds(
    "--interval",
    least_open=True,
    envvar="ZKMS_CLEANER_INTERVAL",
    default=INTERVAL,
    help="Time between two sweeps of the leader.",
)
@_seconds(
    "--grace",
    envvar="ZKMS_CLEANER_GRACE",
    default=GRACE,
    help="How long a queue must be seen without its subscriber, who may come back.",
)
@_seconds(
    "--unused-after",
    least_open=True,
    envvar="ZKMS_CLEANER_UNUSED_AFTER",
    help="Also remove durable subscriptions and groups that nobody has used for so long, and where nothing waits. "
    "[default: never]",
)
@click.option("--once", is_flag=True, help="Sweep once, wait --grace out, purge what is orphaned still, and exit.")
@click.option("--dry-run", is_flag=True, help="Print what would be purged and why, change nothing, and exit.")
@click.option("--json", "json_", is_flag=True, help="With --once or --dry-run: print one JSON list.")
@_seconds("--timeout", default=10.0, help="With --once: how long to wait for the lead.")
@_option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    envvar="ZKMS_CLEANER_METRICS_PORT",
    help="Serve /metrics (Prometheus), /healthz and /readyz here; 0 takes a free port. Needs zkms[cleaner].",
)
@_option("--metrics-host", envvar="ZKMS_CLEANER_METRICS_HOST", default="127.0.0.1", help="Address to serve them on.")
@trail_option
@_seconds(
    "--session-timeout",
    least_open=True,
    default=10.0,
    help="After so long without a sign of life from this process another cleaner takes the lead.",
)
@_option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    envvar="ZKMS_CLEANER_LOG_LEVEL",
    help="What to log to stderr.  [default: info; warning with --once and --dry-run]",
)
@click.version_option(__version__, prog_name="zkms-cleaner", message="%(prog)s %(version)s")
def main(
    hosts: str,
    root: str,
    interval: float,
    grace: float,
    unused_after: float | None,
    once: bool,
    dry_run: bool,
    json_: bool,
    timeout: float,
    metrics_port: int | None,
    metrics_host: str,
    trail: str | None,
    session_timeout: float,
    log_level: str | None,
) -> None:
    """Purge what dead subscribers have left behind: their queues with all that waits in them.

    Runs until SIGTERM or Ctrl-C. Any number of cleaners may run: one of them leads, and another takes over when it
    goes. Every client of zkms takes part in the same election unless it says connect(..., cleaner=False), so a daemon
    is needed only where clients opt out, or where somebody wants metrics and a log of what was purged.

    A queue is purged when its subscriber's session has ended and it was seen without its subscriber for --grace
    seconds; messages for the living are never touched, unless they have expired. Message ids past their window and
    topics that nobody uses are forgotten; durable subscriptions and groups are kept, but see --unused-after.
    """
    level = log_level or ("warning" if once or dry_run else "info")
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True)
    if log_level is None and (once or dry_run):
        logging.getLogger("zkms.kazoo").setLevel(logging.CRITICAL)  # our own error will say it, in one sentence
    if json_ and not (once or dry_run):
        raise click.UsageError("--json goes with --once or --dry-run; what the daemon does is in its log and metrics")
    options: dict[str, Any] = {"hosts": hosts, "root": root, "session_timeout": session_timeout}
    try:
        if once or dry_run:
            interrupt_on_sigterm()
            pairs, sasl = parse_auth(read_auth())
            config = Config(
                **options,
                auth=pairs,
                sasl=sasl,
                tls=read_tls(),
                cleaner=False,
                connect_timeout=CONNECT_TIMEOUT,
                trail=as_trail(trail),
            )
            if dry_run:
                oneshot.dry_run(config, grace=grace, unused_after=unused_after, json=json_)
            else:
                oneshot.once(config, grace=grace, unused_after=unused_after, timeout=timeout, json=json_)
            return
        options |= {"auth": read_auth(), "tls": read_tls(), "trail": trail}
        daemon = Daemon(options, interval=interval, grace=grace, unused_after=unused_after)

        def on_signal(_number: int, _frame: FrameType | None) -> None:
            daemon.stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, on_signal)
        _serve(daemon, interval, metrics_host, metrics_port)
    except KeyboardInterrupt as error:
        raise Failure("interrupted", Exit.INTERRUPTED) from error
    except ZkmsError as error:
        raise as_failure(error) from error


if __name__ == "__main__":
    main()
