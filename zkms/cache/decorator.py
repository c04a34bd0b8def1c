"""cached(): cache a function's results by its arguments, like functools.cache.

A key begins with the function's name, which must mean the same function on every node. All functions of one factory
have the same name in Python; so the simple values that they close over are added to the name, since they are the same
on every node. If this does not suffice, cached() raises and asks for `name=`.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any, NamedTuple

from zkms.cache.core import CacheCore
from zkms.cache.keys import InvalidKey, Key, check_key, check_tags
from zkms.cache.store import MISSING
from zkms.errors import InvalidArgument

MakeKey = Callable[..., Key]
MakeTags = str | Iterable[str] | Callable[..., str | Iterable[str]]


class CacheInfo(NamedTuple):
    """Like that of functools; `currsize` counts this function's values, `maxsize` is that of the whole cache."""

    hits: int
    misses: int
    maxsize: int
    currsize: int


class CachedFunction:
    """The part of a cached function that threads and asyncio share: keys, tags and counters."""

    def __init__(
        self,
        core: CacheCore,
        function: Callable[..., Any],
        key: MakeKey | None,
        tags: MakeTags,
        name: str | None,
        *,
        coroutines: bool = False,
    ) -> None:
        """Check the arguments; `coroutines` is for zkms.aio, which awaits them."""
        if not callable(function):
            raise InvalidArgument(f"cached() decorates a function, not {function!r:.60}; write @cache.cached()")
        if inspect.iscoroutinefunction(function) and not coroutines:
            raise InvalidArgument(f"{function!r:.80} is a coroutine function: use the cache of zkms.aio")
        if key is not None and not callable(key):
            raise InvalidArgument(f"key must be a function of the arguments, not {key!r:.60}")
        tag = _name(core, function, name)
        wrapper: Any = self  # subclasses can be called
        functools.update_wrapper(wrapper, function)
        self.tag = tag
        self._core = core
        self._function = function
        self._make_key = _by(tag, key) if key else _by_arguments(tag, function)
        self._make_tags = tags if callable(tags) else None
        self._tags = (tag,) if callable(tags) else (*check_tags(tags), tag)
        self._loads = 0
        self._calls = 0

    def counted(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[Key], Any]:
        """Count a call, and return a loader for its result, which is counted too."""
        lock = self._core.store.lock  # this lock is replaced in a forked child
        with lock:
            self._calls += 1

        def load(_key: Key) -> Any:
            with lock:
                self._loads += 1
            return self._function(*args, **kwargs)

        return load

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind a method: the instance is the first argument, so `key=` has to make a key of it."""
        return self if instance is None else Bound(self, instance)

    def __repr__(self) -> str:
        return f"<cached {self.tag} in {self._core.name!r}>"

    def cache_key(self, *args: Any, **kwargs: Any) -> Key:
        """Return the key of the result for these arguments."""
        return self._make_key(*args, **kwargs)

    def cache_tags(self, *args: Any, **kwargs: Any) -> tuple[str, ...]:
        """Return the tags of the result for these arguments."""
        if self._make_tags is None:
            return self._tags
        return (*check_tags(self._make_tags(*args, **kwargs)), self.tag)

    def cache_info(self) -> CacheInfo:
        """Return how often a result was cached, and how often it was computed."""
        size = self._core.store.tagged(self.tag)
        with self._core.store.lock:
            return CacheInfo(self._calls - self._loads, self._loads, self._core.settings.maxsize, size)


class Bound:
    """A cached method of one object, which is the first argument of its calls and of its invalidate()."""

    def __init__(self, cached: Any, instance: object) -> None:
        self.__func__ = cached
        self.__self__ = instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the cached function."""
        return self.__func__(self.__self__, *args, **kwargs)

    def invalidate(self, *args: Any, wait: float | None = None, **kwargs: Any) -> Any:
        """Drop the result for this object and these arguments, on every node."""
        return self.__func__.invalidate(self.__self__, *args, wait=wait, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Forward other attributes to the function: cache_info(), cache_clear()."""
        if name == "__func__":  # on an object that copy has not filled yet
            raise AttributeError(name)
        return getattr(self.__func__, name)

    def __repr__(self) -> str:
        return f"<{self.__func__!r} of {self.__self__!r:.60}>"


def _by(tag: str, key: MakeKey) -> MakeKey:
    return lambda *args, **kwargs: (tag, key(*args, **kwargs))


def _by_arguments(tag: str, function: Callable[..., Any]) -> MakeKey:
    """Make one key for equal calls, however the arguments are written: f(1), f(user=1), and f() if 1 is the default."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions written in C
        return lambda *args, **kwargs: (tag, *args, *sorted(kwargs.items()))
    parameters = signature.parameters.values()
    plain = all(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    count = len(parameters) if plain else -1

    def make(*args: Any, **kwargs: Any) -> Key:
        if kwargs or len(args) != count:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            args = (*bound.args, *sorted(bound.kwargs.items()))
        return (tag, *args)

    return make


def _name(core: CacheCore, function: Callable[..., Any], name: str | None) -> str:
    """Return a unique name for the function in this cache."""
    if name is not None:
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"name must be a non-empty str, not {name!r:.60}")
        found = name
    else:
        found = f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', repr(type(function)))}"
        values = _closed_over(function)
        if values:
            found += f"[{', '.join(values)}]"
    before = core.functions.get(found)
    other = None if before is None else before()
    if other is not None and other is not function and not _same(other, function):
        raise InvalidArgument(
            f"two functions would share the name {found!r} in cache {core.name!r}, and so each other's results: "
            "give each a name of its own with cached(name=...), the same on every node"
        )
    core.functions[found] = weakref.ref(function) if hasattr(function, "__weakref__") else lambda: function
    return found


def _closed_over(function: Callable[..., Any]) -> list[str]:
    """Return the simple values that a function closes over, in a form that is the same on every node."""
    return [repr(value) for value in _enclosed(function) if _is_simple(value)]


def _enclosed(function: Any) -> list[Any]:
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or () if _is_filled(cell)]
    return cells if "<locals>" in getattr(function, "__qualname__", "") else []


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty one raises
    except ValueError:
        return False
    return True


def _is_simple(value: object) -> bool:
    try:
        check_key(value)
    except InvalidKey:
        return False
    return True


def _same(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether two functions are equal: a reloaded module, or a factory called twice with the same simple values."""
    codes = getattr(one, "__code__", MISSING), getattr(other, "__code__", None)
    if not isinstance(codes[0], CodeType) or codes[0] != codes[1]:
        return False
    enclosed = _enclosed(one), _enclosed(other)
    return all(a is b or (_is_simple(a) and a == b) for a, b in zip(*enclosed, strict=True))
