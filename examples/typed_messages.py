"""Messages of a type: what does not fit it never reaches the handler, and is reported instead.

python typed_messages.py [HOST:PORT]
"""

import os
import sys
from dataclasses import dataclass

import zkms

HOSTS = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ZKMS_HOSTS", "127.0.0.1:2181")
ROOT = os.environ.get("ZKMS_ROOT", "/zkms")


@dataclass
class Renamed:
    """A dataclass here; msgspec's Struct, TypedDict and plain types work as well."""

    user: int
    name: str


def refused(error: Exception, _message: zkms.Message | None) -> None:
    """Called on the subscription's own thread, as the handler is."""
    print("refused:", error)


with zkms.connect(HOSTS, root=ROOT) as bus:
    bus.subscribe("renames", lambda message: print("typed:", message.data), type=Renamed, on_error=refused)
    bus.publish("renames", Renamed(42, "Ada")).wait(timeout=2.0)
    bus.publish("renames", {"user": "forty-two"}).wait(timeout=2.0)
