"""Options of subscribe(), create_group() and connect() are declared once, told by help(), and others are refused."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import zkms
import zkms.aio
from zkms import Bus
from zkms.config import Config, ConnectOptions, configure
from zkms.publish.options import ManyOptions, PublishOptions, StreamOptions
from zkms.subscribe.options import DurableOptions, GroupOptions, GroupQueueOptions, SubscribeOptions

SUBSCRIBE = {*DurableOptions.__annotations__, *GroupOptions.__annotations__, "name", "group"}


def test_what_is_declared_is_what_is_taken() -> None:
    """A field that nobody takes, or an option that type checkers do not know, would be a trap."""
    taken = set(inspect.signature(SubscribeOptions).parameters)
    assert taken - {"topic", "handler"} == SUBSCRIBE
    assert taken >= set(GroupQueueOptions.__annotations__)
    settings = set(inspect.signature(Config).parameters) | set(inspect.signature(configure).parameters)
    assert settings - {"hosts", "root", "sasl", "settings"} == set(ConnectOptions.__annotations__)


@pytest.mark.parametrize(
    ("call", "options"),
    [
        (zkms.Bus.subscribe, SUBSCRIBE),
        (zkms.aio.Bus.subscribe, SUBSCRIBE),
        (zkms.Bus.create_group, GroupQueueOptions.__annotations__),
        (zkms.aio.Bus.create_group, GroupQueueOptions.__annotations__),
        (zkms.Bus.publish, PublishOptions.__annotations__),
        (zkms.Bus.publish_many, ManyOptions.__annotations__),
        (zkms.Bus.publisher, StreamOptions.__annotations__),
        (zkms.connect, ConnectOptions.__annotations__),
        (zkms.aio.connect, ConnectOptions.__annotations__),
    ],
)
def test_help_tells_every_option(call: Any, options: Any) -> None:
    """The signature does not any more."""
    told = inspect.getdoc(call) or ""
    assert [option for option in options if f"`{option}" not in told] == []


def test_an_option_that_does_not_exist_is_a_type_error(bus: Bus) -> None:
    """Also one that only zkms itself may set, and one of subscribe() that says nothing of a group's queues."""
    wrong: dict[str, Any] = {"limits": 1}
    internal: dict[str, Any] = {"make": zkms.Message}
    reading: dict[str, Any] = {"ttr": 5.0}
    for call in (
        lambda: bus.subscribe("users", **wrong),
        lambda: bus.subscribe("users", **internal),
        lambda: bus.subscribe("users", name="audit", **wrong),
        lambda: bus.create_group("users", "workers", **wrong),
        lambda: bus.create_group("users", "workers", **reading),
        lambda: zkms.connect("127.0.0.1:1", **wrong),
        lambda: zkms.aio.connect("127.0.0.1:1", **wrong),
    ):
        with pytest.raises(TypeError, match=r"^\w+\(\) got an unexpected keyword argument"):
            call()
    sasl: dict[str, Any] = {"sasl": None}
    with pytest.raises(TypeError, match="sasl"):
        zkms.connect("127.0.0.1:1", **sasl)
    assert bus.topics() == []
