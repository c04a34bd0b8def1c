"""What Prometheus sees of a cleaner."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from zkms_cleaner.sweep import Swept


class Metrics:
    """Counts sweeps and what they removed, in a registry of its own."""

    def __init__(self, leading: Callable[[], bool]) -> None:
        self.registry = CollectorRegistry()
        Gauge(
            "zkms_cleaner_leading",
            "1 while this cleaner leads, else 0; the sum over all should be 1.",
            registry=self.registry,
        ).set_function(lambda: float(leading()))
        self._sweeps = self._counter("sweeps", "Sweeps that were finished.")
        self._queues = self._counter("purged_queues", "Queues removed.")
        self._entries = self._counter("purged_entries", "Entries removed with their queues.")
        self._producers = self._counter("purged_producers", "Idle producers removed.")
        self._failures = self._counter("failures", "Sweeps cut short, and orphans that could not be removed.")
        self._seconds = Histogram(
            "zkms_cleaner_sweep_seconds",
            "Duration of a sweep.",
            buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100),
            registry=self.registry,
        )
        self._orphans = Gauge("zkms_cleaner_orphans", "Orphans that the last sweep saw.", registry=self.registry)
        self._last = Gauge(
            "zkms_cleaner_last_sweep_timestamp_seconds", "When a sweep was last finished.", registry=self.registry
        )

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"zkms_cleaner_{name}", text, registry=self.registry)

    def swept(self, swept: Swept, seconds: float) -> None:
        """A sweep was finished."""
        queues = [finding for finding in swept.removed if finding.kind == "queue"]
        self._sweeps.inc()
        self._queues.inc(len(queues))
        self._entries.inc(sum(finding.entries for finding in queues))
        self._producers.inc(sum(finding.kind == "producer" for finding in swept.removed))
        self._failures.inc(swept.failed)
        self._seconds.observe(seconds)
        self._orphans.set(len(swept.removed) + len(swept.waiting) + swept.failed)
        self._last.set(time.time())

    def failed(self, _error: Exception) -> None:
        """A sweep was cut short."""
        self._failures.inc()
