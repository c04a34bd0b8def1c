"""The live job for `spark-submit`, where zkms is not installed: the trail is one that is exported as it grows.

    spark-submit --master spark://HOST:7077 --py-files dist/zkms_spark.zip spark/follow.py --trail s3a://... --state DIR

Prints a JSON line for every window that is closed, and one for every alert.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from zkms_spark.errors import AnalysisError
from zkms_spark.live.alerts import sinks
from zkms_spark.live.follow import follow
from zkms_spark.live.settings import FollowSettings
from zkms_spark.live.slo import Slo
from zkms_spark.live.window import Window, iso
from zkms_spark.session import attach


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit code."""
    options = _parser().parse_args(arguments)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    spark = attach()
    try:
        settings = FollowSettings(
            trail=options.trail,
            state=options.state,
            slo=Slo(options.p99, options.lag, options.gaps),
            late=options.late,
            every=options.every,
            audit_every=options.audit_every,
            webhook=options.webhook,
            topic=options.alert_topic,
            hosts=options.hosts,
            root=options.root,
            once=options.once,
        )
        follow(spark, settings, sinks(settings, json_lines=True), closed=_tell, stop=stop)
    except AnalysisError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        spark.stop()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="zkms_spark.live", description="Keep a trail's figures live, and raise alerts; see docs/spark.md."
    )
    parser.add_argument("--trail", required=True, metavar="URL", help="what `zkms trail export` writes into")
    parser.add_argument("--state", required=True, type=Path, metavar="DIR", help="figures and checkpoint: the driver's")
    parser.add_argument("--p99", type=float, metavar="SECONDS", help="alert if a subscription's p99 is above this")
    parser.add_argument("--lag", type=int, metavar="MESSAGES", help="alert if more wait for a subscription")
    parser.add_argument("--gaps", type=int, default=0, metavar="COUNT", help="alert if there are more in a minute (0)")
    parser.add_argument(
        "--late", type=float, default=FollowSettings.late, metavar="SECONDS", help="how late trails come"
    )
    parser.add_argument(
        "--every", type=float, default=FollowSettings.every, metavar="SECONDS", help="between two looks"
    )
    parser.add_argument(
        "--audit-every", type=float, default=FollowSettings.audit_every, metavar="SECONDS", help="0: never"
    )
    parser.add_argument("--webhook", metavar="URL", help="POST alerts there")
    parser.add_argument("--alert-topic", metavar="TOPIC", help="publish alerts there; needs zkms on the driver")
    parser.add_argument("--hosts", metavar="HOST:PORT,...", help="ZooKeeper, for --alert-topic")
    parser.add_argument("--root", default=FollowSettings.root, metavar="PATH", help="znode that zkms is below")
    parser.add_argument("--once", action="store_true", help="take what is there, and end")
    return parser


def _tell(window: Window) -> None:
    print(json.dumps(summary(window)), flush=True)


def summary(window: Window) -> dict[str, Any]:
    """A window in a few figures."""
    topics, subscriptions = window.topics(), window.subscriptions()
    p99s = [row["p99"] for row in topics if row["p99"] is not None]
    return {
        "window": iso(window.step),
        "published": sum(row["published"] for row in topics),
        "delivered": sum(row["delivered"] for row in topics),
        "p99": max(p99s, default=None),
        "waiting": sum(row["waiting"] or 0 for row in subscriptions),
        "gaps": sum(row["gaps"] for row in subscriptions),
        "lost_lines": window.lost_lines(),
    }
