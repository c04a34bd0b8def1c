"""Sends alerts: to the console, a webhook, a zkms topic. A failure is reported and retried, and stops nothing.

A sink's `send` takes a list of alerts and raises if they have not arrived. It takes a bounded time.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from zkms_spark.errors import AnalysisError
from zkms_spark.live.settings import FollowSettings
from zkms_spark.live.slo import Alert

TRIES = 3
TIMEOUT = 5.0
PAUSE = 0.5
"""Seconds before the second try; twice that before the third."""


class NotSent(AnalysisError):
    """Alerts that a sink could not deliver, and why."""


class Sink(Protocol):
    """A destination of alerts."""

    name: str

    def send(self, alerts: list[Alert]) -> None:
        """Deliver them, or raise `NotSent`."""
        ...


class Console:
    """A line each; JSON lines where programs read."""

    name = "console"

    def __init__(self, *, json_lines: bool = False) -> None:
        self._json = json_lines

    def send(self, alerts: list[Alert]) -> None:
        """Print them."""
        for alert in alerts:
            line = json.dumps(alert) if self._json else f"ALERT {alert['kind']}: {_printable(alert['text'])}"
            print(line, flush=True)


class AlertWebhook:
    """One POST for all alerts of a batch, as JSON: {"alerts": [...]}. Any 2xx means that they have arrived."""

    name = "webhook"

    def __init__(self, url: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._url = url
        self._sleep = sleep

    def send(self, alerts: list[Alert]) -> None:
        """Try a few times."""
        body = json.dumps({"alerts": alerts}).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "zkms"}
        reason = ""
        for attempt in range(TRIES):
            if attempt:
                self._sleep(PAUSE * 2 ** (attempt - 1))
            request = urllib.request.Request(self._url, body, headers, method="POST")  # noqa: S310 - http(s), checked
            try:
                urllib.request.urlopen(request, timeout=TIMEOUT).close()  # noqa: S310
                return
            except urllib.error.HTTPError as error:
                error.close()
                reason = f"it answered {error.code} {error.reason}"
                if error.code < 500 and error.code not in (408, 429):
                    break  # the same again would be refused again
            except (OSError, ValueError) as error:
                reason = str(getattr(error, "reason", None) or error)
        raise NotSent(f"the webhook {self._url} has not taken {len(alerts)} alerts: {reason}")


class Topic:
    """A message each on a zkms topic: its data is the alert, its id the alert's, its key the topic that it is about."""

    name = "topic"

    def __init__(self, topic: str, hosts: str, root: str) -> None:
        self._topic, self._hosts, self._root = topic, hosts, root

    def send(self, alerts: list[Alert]) -> None:
        """Connect for it: alerts are rare."""
        try:
            import zkms
        except ModuleNotFoundError as error:
            raise NotSent("alerts on a topic need zkms on the driver: pip install zkms") from error
        try:
            with zkms.connect(self._hosts, root=self._root, cleaner=False, connect_timeout=TIMEOUT) as bus:
                for alert in alerts:
                    with suppress(zkms.DuplicateMessage):  # it has arrived before, and we were killed since
                        bus.publish(self._topic, alert, key=alert["topic"], id=alert["id"], if_nobody="drop")
        except zkms.ZkmsError as error:
            raise NotSent(f"the topic {self._topic!r} has not taken {len(alerts)} alerts: {error}") from error


def sinks(settings: FollowSettings, *, json_lines: bool = False) -> list[Sink]:
    """Those that were asked for; the console always."""
    chosen: list[Sink] = [Console(json_lines=json_lines)]
    if settings.webhook is not None:
        chosen.append(AlertWebhook(settings.webhook))
    if settings.topic is not None and settings.hosts is not None:
        chosen.append(Topic(settings.topic, settings.hosts, settings.root))
    return chosen


def warn(text: str) -> None:
    """On stderr."""
    print(f"Warning: {_printable(text)}", file=sys.stderr, flush=True)


def _printable(text: str) -> str:
    """Names come from the trail: they must not drive a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
