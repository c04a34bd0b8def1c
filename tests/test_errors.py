"""Errors: one tree, drawn in its module, and one place where kazoo's become ours."""

from __future__ import annotations

import inspect
import re

import kazoo.exceptions
import kazoo.handlers.threading
import kazoo.handlers.utils
import pytest
from kazoo.handlers.threading import KazooTimeoutError

import zkms
from zkms import errors
from zkms.errors import StoreError, ZkmsError, translate

EXPECTED = {
    # What a caller can act upon.
    "NoNodeError": "NodeMissing",
    "NodeExistsError": "NodeExists",
    "BadVersionError": "BadVersion",
    "NotEmptyError": "NotEmpty",
    "NoAuthError": "Unauthorised",
    "AuthFailedError": "Unauthorised",
    "SASLException": "Unauthorised",
    "SessionClosedRequireSaslError": "Unauthorised",
    "QuotaExceededError": "QuotaExceeded",
    "SessionExpiredError": "SessionExpired",
    "ConnectionClosedError": "SessionExpired",
    "UnknownSessionError": "SessionExpired",
    "ConnectionLoss": "ConnectionLost",
    "ConnectionDropped": "ConnectionLost",
    "SessionMovedError": "ConnectionLost",
    "OperationTimeoutError": "ConnectionLost",
    "RequestTimeoutError": "ConnectionLost",
    "ThrottledOpError": "ConnectionLost",
    "KazooTimeoutError": "ConnectionLost",
    # What means that the server or we are at fault: the name is in the text, and there is nothing else to do.
    "APIError": "StoreError",
    "BadArgumentsError": "StoreError",
    "DataInconsistency": "StoreError",
    "InvalidACLError": "StoreError",
    "MarshallingError": "StoreError",
    "NoChildrenForEphemeralsError": "StoreError",
    "NotReadOnlyCallError": "StoreError",
    "RuntimeInconsistency": "StoreError",
    "SystemZookeeperError": "StoreError",
    "UnimplementedError": "Unsupported",
    "ZookeeperError": "StoreError",
    "KazooException": "StoreError",
    # What the features of kazoo and ZooKeeper raise that zkms does not use.
    "CancelledError": "StoreError",
    "ConfigurationError": "StoreError",
    "EphemeralOnLocalSessionError": "StoreError",
    "InvalidCallbackError": "StoreError",
    "LockTimeout": "StoreError",
    "NewConfigNoQuorumError": "StoreError",
    "NoWatcherError": "StoreError",
    "ReconfigDisabledError": "StoreError",
    "ReconfigInProcessError": "StoreError",
    "RolledBackError": "StoreError",
    "WriterNotClosedException": "StoreError",
    "ZookeeperStoppedError": "StoreError",
}


def kazoos() -> list[type[BaseException]]:
    """Every exception class that kazoo defines for its users, aliases once."""
    modules = (kazoo.exceptions, kazoo.handlers.threading, kazoo.handlers.utils)
    found = {cls for module in modules for _, cls in inspect.getmembers(module, inspect.isclass)}
    return sorted((c for c in found if issubclass(c, BaseException) and c.__module__.startswith("kazoo")), key=str)


def ours() -> list[type[ZkmsError]]:
    """Every error class of zkms."""
    found = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if cls.__module__ == errors.__name__]
    return [cls for cls in found if issubclass(cls, ZkmsError)]


def test_every_exception_of_kazoo_has_been_thought_of() -> None:
    """A newer kazoo with a new exception fails here, so that somebody decides what it means."""
    assert {cls.__name__ for cls in kazoos()} == set(EXPECTED)


@pytest.mark.parametrize("cls", kazoos(), ids=lambda cls: cls.__name__)
def test_kazoos_exceptions_become_ours(cls: type[BaseException]) -> None:
    """Each is what the table says, and carries the path."""
    error = translate(cls("words"), "/a/path")
    assert type(error).__name__ == EXPECTED[cls.__name__]
    assert isinstance(error, StoreError)
    assert error.path == "/a/path"
    assert "/a/path" in str(error)


def test_every_error_code_of_zookeeper_becomes_one_of_ours() -> None:
    """The codes of ZooKeeper's protocol all have a class in kazoo, hence one here."""
    for cls in kazoo.exceptions.EXCEPTIONS.values():
        assert isinstance(translate(cls()), StoreError)


def test_unknown_exceptions_keep_their_name_and_text() -> None:
    """An OSError from below is not lost."""
    error = translate(OSError("disk on fire"))
    assert type(error) is StoreError
    assert "OSError: disk on fire" in str(error)


def test_our_own_errors_pass_through() -> None:
    """translate() may be called twice."""
    error = errors.NoSubscribers("users")
    assert translate(error) is error


def test_answers_that_are_missing_leave_the_outcome_open() -> None:
    """A lost answer never claims that nothing was done."""
    for cls in (kazoo.exceptions.ConnectionLoss, kazoo.exceptions.SessionExpiredError, KazooTimeoutError):
        error = translate(cls())
        assert isinstance(error, errors.ConnectionLost)
        assert error.outcome_unknown


def test_the_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    """Every class is drawn, below its parent, and nothing else is."""
    drawn: dict[str, str] = {}
    stack: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^([│├└─ ]*)([A-Z]\w+(?: / [A-Z]\w+)*)(?: |$)", line)
        if match is None or (not match[1] and match[2] != "ZkmsError"):
            continue
        depth = len(match[1])
        while stack and stack[-1][0] >= depth:
            stack.pop()
        names = match[2].split(" / ")
        drawn |= dict.fromkeys(names, stack[-1][1] if stack else "Exception")
        stack.append((depth, names[0]))
    assert drawn == {cls.__name__: cls.__bases__[0].__name__ for cls in ours()}


def test_every_error_is_public() -> None:
    """Whatever a caller may meet can be caught by name."""
    for cls in ours():
        assert getattr(zkms, cls.__name__) is cls
        assert cls.__name__ in zkms.__all__


def test_errors_are_also_what_python_calls_them() -> None:
    """A bad argument is a ValueError, a time-out a TimeoutError."""
    assert issubclass(zkms.InvalidTopic, ValueError)
    assert issubclass(zkms.InvalidMessage, ValueError)
    assert issubclass(zkms.Timeout, TimeoutError)


def test_errors_carry_what_a_caller_needs_to_act() -> None:
    """Topic, size and limit, not only words."""
    too_large = errors.MessageTooLarge("users", 2_000_000, 500_000, 3)
    assert (too_large.topic, too_large.size, too_large.limit, too_large.subscriptions) == (
        "users",
        2_000_000,
        500_000,
        3,
    )
    assert "2,000,000" in str(too_large)
    assert errors.NoSubscribers("users").topic == "users"
    assert "if_nobody" in str(errors.NoSubscribers("users"))
    assert errors.AlreadyAcked("p:1").message_id == "p:1"
    fenced = errors.ProducerFenced("billing", "other")
    assert (fenced.producer, fenced.owner) == ("billing", "other")
