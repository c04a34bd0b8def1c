"""Notifications between the nodes of a service, on the ZooKeeper it already runs."""

from zkms.version import __version__

__all__ = ["__version__"]
