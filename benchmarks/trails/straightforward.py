"""The straightforward version: one SQL query a question, every message by itself, under its id as a string.

What one would write first, and fair to itself: columns are pruned, filters are pushed down, only what a question needs
is taken apart into messages, and Spark's adaptive execution and code generation are on. It answers less than the jobs
do: no clocks are corrected, and of a message that did not arrive it does not ask whether a gap or a purge accounts
for it.
"""

# ruff: noqa: S608 - nothing goes into these queries that does not stand in this file

from __future__ import annotations

from dataclasses import dataclass

QUESTIONS = ("latency", "lost", "duplicated", "out_of_order")


@dataclass(frozen=True)
class Dialect:
    """What Spark and DuckDB spell differently; `views` are made first and computed by each question anew."""

    views: dict[str, str]
    latency: str


_STORED = "event in ('published', 'due')"
_ARRIVED = "event = 'delivered'"
_HANDLED = "event in ('delivered', 'redelivered', 'expired', 'dead') and seq is not null"
_KEYED = "event in ('published', 'delayed') and keys is not null"

SPARK = Dialect(
    {
        "stored": f"""
            select topic, sub, producer || ':' || (seq + place) as id
            from (select topic, producer, seq, n, places, explode(subs) as sub from trail where {_STORED})
            lateral view explode(coalesce(places, sequence(0L, n - 1))) as place""",
        "handled": f"""
            select topic, sub, producer || ':' || (seq + place) as id from trail
            lateral view explode(coalesce(places, sequence(0L, n - 1))) as place where {_HANDLED}""",
        "delivered": f"""
            select topic, sub, kind, producer, seq + place as number, producer || ':' || (seq + place) as id, epoch, i
            from trail lateral view explode(coalesce(places, sequence(0L, n - 1))) as place where {_ARRIVED}""",
        "keyed": f"""
            select topic, producer || ':' || (seq + coalesce(places[place], place)) as id, key
            from trail lateral view posexplode(keys) as place, key where {_KEYED}""",
    },
    f"""select topic, sub, floor(t / 60) as minute, sum(n) as messages,
        percentile(t - at, array(0.5, 0.9, 0.99), n) as quantiles
        from trail where {_ARRIVED} group by topic, sub, floor(t / 60)""",
)

DUCKDB = Dialect(
    {
        "stored": f"""
            select topic, sub, producer || ':' || (seq + unnest(coalesce(places, range(n)))) as id
            from (select topic, producer, seq, n, places, unnest(subs) as sub from trail where {_STORED})""",
        "handled": f"""
            select topic, sub, producer || ':' || (seq + unnest(coalesce(places, range(n)))) as id
            from trail where {_HANDLED}""",
        "delivered": f"""
            select topic, sub, kind, producer, number, producer || ':' || number as id, epoch, i
            from (select *, seq + unnest(coalesce(places, range(n))) as number from trail where {_ARRIVED})""",
        "keyed": f"""
            select topic, producer || ':' || (seq + place) as id, key
            from (select topic, producer, seq, unnest(coalesce(places, range(n))) as place, unnest(keys) as key
                  from trail where {_KEYED})""",
    },
    f"""select topic, sub, floor(t / 60) as minute, count(*) as messages,
        quantile_cont(latency, [0.5, 0.9, 0.99]) as quantiles
        from (select topic, sub, t, t - "at" as latency, unnest(range(n)) from trail where {_ARRIVED})
        group by topic, sub, floor(t / 60)""",
)

LOST = """
    select topic, sub, count(*) as messages
    from stored anti join handled using (topic, sub, id)
    group by topic, sub"""

DUPLICATED = """
    select topic, sub, id from delivered group by topic, sub, id having count(*) > 1"""

OUT_OF_ORDER = """
    select topic, sub, id from (
        select d.topic, d.sub, d.id, kind, k.key, number, max(number) over (
            partition by d.topic, d.sub, producer, case when kind = 'group' then k.key end
            order by epoch, i, number rows between unbounded preceding and 1 preceding
        ) as reached
        from delivered d left join keyed k on d.kind = 'group' and d.topic = k.topic and d.id = k.id
    ) as lanes where number < reached and (kind <> 'group' or key is not null)"""
"""In the order of its producer; in a group only the order of a key counts, if the trail has the line that tells it."""


def queries(dialect: Dialect) -> dict[str, str]:
    """A query for each question."""
    return {"latency": dialect.latency, "lost": LOST, "duplicated": DUPLICATED, "out_of_order": OUT_OF_ORDER}
