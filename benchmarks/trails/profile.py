"""Where the time of a Spark session goes: what its Java says of itself, and the log of its tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SETTINGS = {
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}
_TASKS = {
    "task_seconds": ("Executor Run Time", 1e-3),
    "task_cpu": ("Executor CPU Time", 1e-9),
    "gc": ("JVM GC Time", 1e-3),
    "deserialise": ("Executor Deserialize Time", 1e-3),
    "spilled_mb": ("Disk Bytes Spilled", 1e-6),
}


def of_java(spark: Any) -> dict[str, float]:
    """Seconds so far: all CPU, just-in-time compilation, generated code compiled by Spark, and how many classes."""
    java = spark._jvm.java.lang.management.ManagementFactory
    generated = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    return {
        "cpu": _process_cpu(spark),
        "jit": java.getCompilationMXBean().getTotalCompilationTime() / 1e3,
        "codegen": generated.getCount() * generated.getSnapshot().getMean() / 1e3,
        "codegen_classes": float(generated.getCount()),
    }


def _process_cpu(spark: Any) -> float:
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def of_tasks(log: Path) -> dict[str, float]:
    """Sums over all tasks of an event log."""
    sums = dict.fromkeys(
        [*_TASKS, "tasks", "stages", "jobs", "read_mb", "read_rows", "shuffled_mb", "shuffle_wait"], 0.0
    )
    with log.open() as lines:
        for line in lines:
            event = json.loads(line)
            kind = event["Event"]
            sums["jobs"] += kind == "SparkListenerJobStart"
            sums["stages"] += kind == "SparkListenerStageCompleted"
            if kind != "SparkListenerTaskEnd" or not event.get("Task Metrics"):
                continue
            metrics = event["Task Metrics"]
            sums["tasks"] += 1
            for name, (theirs, unit) in _TASKS.items():
                sums[name] += metrics.get(theirs, 0) * unit
            sums["read_mb"] += metrics["Input Metrics"]["Bytes Read"] / 1e6
            sums["read_rows"] += metrics["Input Metrics"]["Records Read"]
            sums["shuffled_mb"] += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"] / 1e6
            sums["shuffle_wait"] += metrics["Shuffle Read Metrics"]["Fetch Wait Time"] / 1e3
    return sums
