"""What can go wrong with a test server, as one error that says what to do."""

from __future__ import annotations

from zkms.errors import ZkmsError


class ServerError(ZkmsError):
    """A ZooKeeper for tests could not be started, reached or controlled; the message says why in one sentence."""
