"""cached(): functools' manners, on every node."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest

from zkms.cache import Cache, InvalidKey
from zkms.errors import InvalidArgument

from .conftest import MakeCache


@pytest.fixture
def cache(node: MakeCache) -> Cache:
    """The cache of this node."""
    return node()


def test_results_are_kept_by_arguments_and_dropped_on_every_node(node: MakeCache) -> None:
    """cache_info() counts, invalidate() drops one, cache_clear() all of this function."""
    calls: list[tuple[str, int]] = []

    def make(cache: Cache, name: str) -> Any:
        @cache.cached(name="load_user")
        def load_user(user: int) -> str:
            """Load a user."""
            calls.append((name, user))
            return f"user {user}"

        return load_user

    here, there = make(node(), "here"), make(node(), "there")
    assert (here.__name__, here.__doc__) == ("load_user", "Load a user.")
    assert [here(1), here(1), there(1), there(1), there(2)] == ["user 1"] * 4 + ["user 2"]
    assert calls == [("here", 1), ("there", 1), ("there", 2)]
    assert there.cache_info() == (1, 2, 10_000, 2)
    assert here.invalidate(1, wait=10.0)
    assert there.cache_info().currsize == 1
    assert there(1) == "user 1"
    assert calls[3:] == [("there", 1)]
    assert here.cache_clear(wait=10.0)
    assert there.cache_info().currsize == 0


def test_one_call_has_one_key_however_its_arguments_are_written(cache: Cache) -> None:
    """By place, by name or by default: an invalidation must find all of them."""
    calls: list[Any] = []

    @cache.cached()
    def load(user: int, full: bool = False, *rest: int, **options: int) -> int:
        calls.append(user)
        return user

    load(1), load(user=1), load(1, False), load(1, full=False), load(full=False, user=1)
    assert calls == [1]
    load(1, False, 2), load(1, False, 2)
    load(1, x=1, y=2), load(1, y=2, x=1)
    assert calls == [1, 1, 1]
    load.invalidate(user=1)
    load(1)
    assert calls == [1] * 4
    with pytest.raises(TypeError):
        load()


def make_loader(cache: Cache, table: str, calls: list[str]) -> Callable[[int], str]:
    """A factory, as programs have them."""

    @cache.cached()
    def load(number: int) -> str:
        calls.append(table)
        return f"{table} {number}"

    return load


def test_functions_of_one_factory_are_told_apart(cache: Cache) -> None:
    """By the simple values that they close over, which are the same on every node."""
    calls: list[str] = []
    users, orders = make_loader(cache, "users", calls), make_loader(cache, "orders", calls)
    assert [users(1), orders(1), users(1), orders(1)] == ["users 1", "orders 1"] * 2
    assert calls == ["users", "orders"]
    users.invalidate(1)  # type: ignore[attr-defined]
    assert [users(1), orders(1)] == ["users 1", "orders 1"]
    assert calls == ["users", "orders", "users"]
    again = make_loader(cache, "users", calls)
    assert again(1) == "users 1"
    assert calls == ["users", "orders", "users"], "the same function made twice shares its results"


def test_functions_that_cannot_be_told_apart_are_refused(cache: Cache) -> None:
    """They would give each other's results; `name` settles it."""

    def make(table: list[str], **options: Any) -> Any:
        return cache.cached(**options)(lambda number: (table[0], number))

    first = make(["users"])
    assert first(1) == ("users", 1)
    with pytest.raises(InvalidArgument, match=r"cached\(name="):
        make(["orders"])
    orders = make(["orders"], name="orders")
    assert orders(1) == ("orders", 1)
    assert first(1) == ("users", 1)
    with pytest.raises(InvalidArgument, match="name"):
        make(["x"], name="")


def test_key_and_tags_can_be_computed_from_the_arguments(cache: Cache) -> None:
    """For methods, and for arguments that cannot be keys."""

    class Users:
        calls = 0

        @cache.cached(key=lambda self, options: options["id"], tags=lambda self, options: [f"user:{options['id']}"])
        def load(self, options: dict[str, int]) -> int:
            self.calls += 1
            return options["id"]

    users = Users()
    assert [users.load({"id": 1}), users.load({"id": 1})] == [1, 1]
    assert users.calls == 1
    cache.invalidate_tag("user:1")
    users.load({"id": 1})
    assert users.calls == 2

    @cache.cached(tags="all")
    def plain(value: Any) -> Any:
        return value

    with pytest.raises(InvalidKey):
        plain({"id": 1})
    plain(1)
    cache.invalidate_tag("all")
    assert plain.cache_info().currsize == 0


def test_a_method_can_be_invalidated_through_its_object(node: MakeCache) -> None:
    """As it is called: the object is the first argument."""
    here, there = node(), node()

    class Team:
        def __init__(self, number: int) -> None:
            self.number = number
            self.calls = 0

        def load(self, user: int) -> tuple[int, int]:
            self.calls += 1
            return self.number, user

    class Here(Team):
        load = here.cached(key=lambda team, user: (team.number, user), name="load")(Team.load)

    class There(Team):
        load = there.cached(key=lambda team, user: (team.number, user), name="load")(Team.load)

    mine, theirs, others = Here(1), There(1), There(2)
    for team in (mine, theirs, others):
        assert team.load(7) == team.load(7) == (team.number, 7)
        assert team.calls == 1
    assert mine.load.invalidate(7, wait=30.0)
    for team in (mine, theirs, others):
        team.load(7)
    assert (mine.calls, theirs.calls, others.calls) == (2, 2, 1)
    assert mine.load.cache_info().misses == 2
    assert "load" in repr(mine.load)
    assert copy.copy(mine.load)(7) == (1, 7)


def test_what_cannot_be_decorated_is_refused(cache: Cache) -> None:
    """With words that say why."""

    async def load() -> None: ...

    with pytest.raises(InvalidArgument, match=r"zkms\.aio"):
        cache.cached()(load)
    with pytest.raises(InvalidArgument, match="function"):
        cache.cached()(1)  # type: ignore[type-var]
    with pytest.raises(InvalidArgument, match="key"):
        cache.cached(key="id")(lambda: 1)  # type: ignore[arg-type]
    assert cache.cached(name="partial")(functools.partial(int, "7"))() == 7
