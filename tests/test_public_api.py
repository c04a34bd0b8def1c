"""The public surface: exactly this, typed and documented."""

from __future__ import annotations

import ast
import importlib.resources
import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import zkms

PUBLIC = {
    *("connect", "Bus", "Subscription", "Message", "Receipt", "Gap", "Codec", "Sasl", "Tls", "__version__"),
    *("Access", "identity"),
    *("TopicPublisher", "Sent", "Consumer", "Transaction", "Answer", "Answers"),
    *("DuplicateMessage", "GroupMismatch", "LostOwnership", "NoCleaner", "QueueFull", "SubscriptionInUse"),
    *("Cache", "TopicInfo", "SubscriptionInfo", "QueueInfo", "ClientInfo", "GroupInfo", "MemberInfo", "PartitionInfo"),
    *("DeadLetterInfo", "DelayedInfo", "Change", "Observer"),
    *("ZkmsError", "InvalidArgument", "InvalidTopic", "InvalidMessage", "MessageTooLarge", "NoSubscribers"),
    *("AlreadySubscribed", "NotSubscribed", "AlreadyAcked", "CannotDecode", "Timeout", "Closed", "UsedAfterFork"),
    *("UsedInAnotherLoop", "aio"),
    *("ProducerFenced", "NewerLayout", "StoreError", "ConnectionLost", "SessionExpired", "Unauthorised"),
    *("NodeMissing", "NodeExists", "BadVersion", "NotEmpty", "QuotaExceeded", "TransactionFailed", "Unsupported"),
}
README = Path(__file__).parents[1] / "README.md"


def test_exactly_these_names_are_public() -> None:
    """Adding or removing one is a decision, not an accident."""
    assert sorted(zkms.__all__) == sorted(PUBLIC)
    assert len(zkms.__all__) == len(set(zkms.__all__))
    for name in zkms.__all__:
        assert hasattr(zkms, name)


@pytest.mark.parametrize("name", sorted(PUBLIC - {"__version__"}))
def test_every_public_name_is_documented(name: str) -> None:
    """Classes and their public members have docstrings of their own."""
    thing = getattr(zkms, name)
    assert inspect.getdoc(thing)
    if inspect.isclass(thing):
        for member, value in vars(thing).items():
            value = value.fget if isinstance(value, property) else value
            if not member.startswith("_") and inspect.isfunction(value) and value.__module__.startswith("zkms"):
                assert value.__doc__, f"{name}.{member} has no docstring"


@pytest.mark.parametrize("name", sorted(PUBLIC - {"__version__"}))
def test_every_public_function_is_typed(name: str) -> None:
    """Each parameter and each result has its annotation."""
    thing = getattr(zkms, name)
    functions = [thing] if inspect.isfunction(thing) else [f for f in vars(thing).values() if inspect.isfunction(f)]
    for function in functions:
        if function.__module__.startswith("zkms") and not function.__name__.startswith("_"):
            signature = inspect.signature(function)
            assert signature.return_annotation is not inspect.Signature.empty, function
            for parameter in list(signature.parameters.values())[0 if function is thing else 1 :]:
                assert parameter.annotation is not inspect.Parameter.empty, (function, parameter)


@pytest.mark.parametrize("package", ["zkms", "zkms_cleaner"])
def test_type_checkers_are_told_that_the_packages_are_typed(package: str) -> None:
    """py.typed is there."""
    assert importlib.resources.files(package).joinpath("py.typed").is_file()


def test_importing_zkms_is_light() -> None:
    """No test tools, no Docker, no Spark, no command line, no cleaner."""
    code = "import sys, zkms; print(*sorted(m for m in sys.modules if '.' not in m))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(run.stdout.split())
    extras = {"pytest", "click", "docker", "testcontainers", "pyspark", "zkms_spark", "zkms_cleaner", "cachetools"}
    assert not loaded & extras


def test_the_readme_uses_names_that_exist() -> None:
    """Every `zkms.name` in the README's Python is public, and every block is Python."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        for node in ast.walk(ast.parse(textwrap.dedent(block))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "zkms":
                assert node.attr in zkms.__all__
