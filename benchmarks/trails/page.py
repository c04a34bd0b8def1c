"""The results as a page."""

from __future__ import annotations

from statistics import median

from benchmarks.trails.contestant import Outcome
from benchmarks.trails.results import Conditions, Planted, Recorder, Results, Scale, Speed

TIMES_FASTER = 5.0
MOST_TIMES = 12.0
MOST_MB = 4096
LEAST_PUBLISH, LEAST_END_TO_END = 0.9, 0.8


def page(results: Results) -> str:
    """Markdown."""
    parts = [
        "# The analysis of trails at scale",
        "",
        "Repeat with `python -m benchmarks.trails` ([what it does](../trails)).",
    ]
    parts.append(
        "Seconds are those on the clock; CPU is that of all processes, which others on the machine change less."
    )
    for part in (
        results.speed and _speed(results.speed),
        results.planted and _planted(results.planted),
        results.scale and _scale(results.scale),
        results.recorder and _recorder(results.recorder),
    ):
        parts += ["", *part] if part else []
    return "\n".join(parts) + "\n"


def _where(c: Conditions) -> str:
    return f"{c.when}, {c.system}, {c.cores} cores, load of the machine {c.load[0]:g} to {c.load[1]:g}."


def _met(met: bool) -> str:
    return "met" if met else "**not met**"


def _speed(part: Speed) -> list[str]:
    by_name = {outcome.name: outcome for outcome in part.outcomes}
    slow, fast = by_name["Spark, straightforward"], by_name["Spark, the jobs"]
    lines = [
        f"## Latency, loss, duplicates and order of {part.events:,} events",
        "",
        f"{_where(part.conditions)} Answers {'agree' if part.agree else '**differ**'}.",
        "",
        "| | start, s | work, s | CPU of the work, s | memory at most, MB | the jobs are, by CPU | on the clock |",
        "|---|---|---|---|---|---|---|",
    ]
    for outcome in part.outcomes:
        cells = (
            *(
                f"{outcome.start:.1f}",
                f"{outcome.seconds:.1f}",
                f"{work_cpu(outcome):.1f}",
                f"{outcome.memory_mb:,.0f}",
            ),
            *(f"{work_cpu(outcome) / work_cpu(fast):.2f}x", f"{outcome.seconds / fast.seconds:.2f}x"),
        )
        lines.append(f"| {outcome.name} | {' | '.join(cells)} |")
    ratio = work_cpu(slow) / work_cpu(fast)
    required = f"Required against the straightforward version: {TIMES_FASTER:g}x. By CPU {ratio:.1f}x: "
    required += f"{_met(ratio >= TIMES_FASTER)}."
    lines += ["", required, "", "| CPU and more, of Spark | straightforward | the jobs |", "|---|---|---|"]
    lines += [
        f"| {text} | {slow.profile.get(key, 0):,.1f} | {fast.profile.get(key, 0):,.1f} |"
        for key, text in PROFILE.items()
    ]
    return lines


PROFILE = {
    "java_start_cpu": "CPU until the session is there, s",
    "java_cpu": "CPU of the work, s",
    "task_cpu": "of that in tasks, s",
    "java_codegen": "Spark's own compiling of queries, s on the clock",
    "java_codegen_classes": "classes that were compiled",
    "java_jit": "the JVM's compiling, s on the clock",
    "gc": "garbage collection, s on the clock",
    "jobs": "jobs",
    "tasks": "tasks",
    "read_rows": "rows read",
    "shuffled_mb": "shuffled, MB",
    "spilled_mb": "spilled to disk, MB",
}


def work_cpu(outcome: Outcome) -> float:
    """Without the start, as far as it is known."""
    return outcome.profile.get("java_cpu", outcome.cpu)


def _planted(part: Planted) -> list[str]:
    return [
        f"## Violations planted among {part.events:,} events",
        "",
        _where(part.conditions),
        "",
        "| violation | planted | found |",
        "|---|---|---|",
        *(f"| {name} | {count} | {part.found.get(name, 0)} |" for name, count in sorted(part.planted.items())),
        "",
        f"Not found: {part.missed}. Invented: {part.invented}.",
    ]


def _scale(part: Scale) -> list[str]:
    lines = [
        "## All jobs, by the number of events",
        "",
        _where(part.conditions),
        "",
        "| events | work, s | CPU, s | memory at most, MB | by stage, s |",
        "|---|---|---|---|---|",
    ]
    for events, outcome in zip(part.events, part.outcomes, strict=True):
        stages = ", ".join(f"{name} {seconds:.0f}" for name, seconds in outcome.steps.items())
        lines.append(
            f"| {events:,} | {outcome.seconds:,.0f} | {outcome.cpu:,.0f} | {outcome.memory_mb:,.0f} | {stages} |"
        )
    first, last = part.outcomes[0], part.outcomes[-1]
    bounded = all(outcome.memory_mb <= MOST_MB for outcome in part.outcomes)
    lines += ["", f"Memory, at most {MOST_MB:,} MB: {_met(bounded)}."]
    if len(part.outcomes) > 1:
        times = part.events[-1] / part.events[0]
        clock, cpu = last.seconds / first.seconds, last.cpu / first.cpu
        most = MOST_TIMES * times / 10
        lines.append(
            f"{times:.1f} times the events take {clock:.1f} times as long, and {cpu:.1f} times the CPU; at most "
            f"{most:.1f} times is required: {_met(clock <= most)}."
        )
    return lines


def _recorder(part: Recorder) -> list[str]:
    publish, end_to_end = median(part.publish), median(part.end_to_end)
    return [
        f"## What a trail costs, with {part.subscribers} subscribers",
        "",
        f"{_where(part.conditions)} Medians of {len(part.publish)} rounds of {part.messages:,} messages, in turns.",
        "",
        "| | with a trail, of the throughput without | at least | | by CPU |",
        "|---|---|---|---|---|",
        _cost("publish", publish, LEAST_PUBLISH, median(part.publish_cpu)),
        _cost("end to end", end_to_end, LEAST_END_TO_END, median(part.end_to_end_cpu)),
    ]


def _cost(what: str, share: float, least: float, by_cpu: float) -> str:
    return f"| {what} | {share:.3f} | {least:g} | {_met(share >= least)} | {by_cpu:.3f} |"
