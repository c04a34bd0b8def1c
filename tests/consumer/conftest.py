"""What the tests of durable subscriptions, groups and transactions share: it is what the tests of the bus share."""

from tests.bus.conftest import (
    Connect,
    Eventually,
    api,
    bus,
    connect,
    event_loop_thread,
    pytest_collection_modifyitems,
    pytest_generate_tests,
)

__all__ = [
    "Connect",
    "Eventually",
    "api",
    "bus",
    "connect",
    "event_loop_thread",
    "pytest_collection_modifyitems",
    "pytest_generate_tests",
]
