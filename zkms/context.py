"""What each room is given: settings, session, paths, our name, and the trail. Never the bus."""

from __future__ import annotations

from dataclasses import dataclass

from zkms.config import Config
from zkms.trail.hooks import Recorder
from zkms.tree.paths import Tree
from zkms.zookeeper.session import Session


@dataclass(frozen=True, slots=True)
class Context:
    """One connected process, as every room sees it."""

    config: Config
    session: Session
    tree: Tree
    client_id: str
    trail: Recorder
    """Told of everything that happens to messages; records nothing where no trail was asked for."""
