"""What can be said about a message is declared once, and what cannot is refused."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from zkms import Bus
from zkms.publish.options import ManyOptions, PublishOptions, StreamOptions
from zkms.publish.publisher import Publisher


def named(*functions: Any) -> set[str]:
    """The options that these functions take by name."""
    parameters = [p for function in functions for p in inspect.signature(function).parameters.values()]
    return {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def test_what_is_declared_is_what_the_publisher_takes() -> None:
    """A field that nobody takes, or an option that type checkers do not know, would be a trap."""
    assert set(PublishOptions.__annotations__) == named(Publisher.options, Publisher.prepare)
    assert set(ManyOptions.__annotations__) == named(Publisher.options, Publisher.prepare_many)
    assert set(StreamOptions.__annotations__) == named(Publisher.stream)


def test_an_option_that_does_not_exist_is_a_type_error(bus: Bus) -> None:
    """In whichever way something is published; nothing is stored."""
    sub = bus.subscribe("users")
    wrong: dict[str, Any] = {"prio": 1}
    for publish in (
        lambda: bus.publish("users", 1, **wrong),
        lambda: bus.publish_many("users", [1], **wrong),
        lambda: bus.publisher("users", **wrong),
        lambda: bus.publisher("users", headers={"a": "b"}),
        lambda: bus.transaction().publish("users", 1, **wrong),
        lambda: bus.transaction().publish("users", 1, timeout=1),
    ):
        with pytest.raises(TypeError, match=r"^publish\w*\(\) got an unexpected keyword argument"):
            publish()
    bus.publish("users", "stored")
    assert sub.get(timeout=5).data == "stored"
