"""The schema of a trail: what its readers in other packages rely on."""

from __future__ import annotations

import msgspec

from zkms.trail.event import COLUMNS, EVENTS, Event, key_hash


def test_every_field_of_an_event_has_a_column() -> None:
    """Whatever a process records can be asked for in Parquet; the version is the file's business alone."""
    assert set(Event.__struct_fields__) - set(COLUMNS) == {"v"}
    assert set(COLUMNS) - set(Event.__struct_fields__) == {"source"}


def test_a_line_says_only_what_it_knows() -> None:
    """Fields that say nothing are left out, as lines are many."""
    line = msgspec.json.encode(Event(event="gap", t=1.5, topic="users", sub="a", reason="expired"))
    assert msgspec.json.decode(line) == {"event": "gap", "t": 1.5, "topic": "users", "sub": "a", "reason": "expired"}


def test_the_hash_of_a_key_never_changes() -> None:
    """Trails of different versions are read together, so these numbers are for ever."""
    assert [key_hash(key) for key in ("42", "user/42", "")] == [1806603449620234343, 4557983733962244693, 1]
    assert 0 < key_hash("\u20ac" * 50) < 2**63


def test_every_event_is_explained() -> None:
    """The module's text is the schema's documentation."""
    import zkms.trail.event as module

    assert module.__doc__ is not None
    assert [word for word in EVENTS if f"    {word} " not in module.__doc__] == []
