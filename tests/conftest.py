"""What all tests share: the fixtures come from the pytest plugin `zkms.testing.fixtures`, as they do for users."""

from __future__ import annotations

pytest_plugins = ["pytester"]
