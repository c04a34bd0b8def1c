"""Who may do what with which znode, where producers, subscribers and cleaners trust each other with as little as works.

`zkms.connect(access=zkms.Access(...))` makes a tree of which every znode has an ACL by its place. The table below is
all there is to it: r(ead, which is also to list), w(rite), c(reate below it), d(elete what is below it). The owner is
whoever made the znode; of a queue's entries and of bodies it is the subscriber that they are for, whose identity is in
its registration. Cleaners may do everything everywhere. Nobody else may do anything.

So a producer adds to a queue, and sees how many entries wait there and how large they are: limits, receipts and the
freeing of bodies need that. It cannot read one of them, nor remove it. Small frames are therefore not put into names
here, as they are elsewhere. ZooKeeper asks for the right to delete at the parent: where many share a parent, and each
has to remove its own (`clients`, a topic's registrations), they can remove each other's.

The policy is kept in ROOT, which cleaners alone can write: whoever connects later goes by what is found there.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from zkms.names import FULL_MARK
from zkms.security import Access, hidden, masked
from zkms.tree.paths import ID_LOG
from zkms.zookeeper.wire import acl_entry

_BITS = {"r": 1, "w": 2, "c": 4, "d": 8}
_ALL = 31
Rule = tuple[str, str, str]
"""What producers, subscribers and the znode's owner may do."""

TABLE: dict[str, Rule] = {
    #                 producers subscribers owner
    "root":           ("r",     "r",        ""),
    "clients":        ("rcd",   "rcd",      ""),
    "client":         ("r",     "r",        "rw"),
    "subscribers":    ("rc",    "rcw",      ""),
    "topic":          ("rcw",   "rcwd",     ""),
    "registration":   ("r",     "r",        "rw"),
    "flag":           ("r",     "r",        ""),
    "messages":       ("r",     "rcd",      ""),
    "lane":           ("r",     "r",        "rcd"),
    "queue":          ("rc",    "",         "rwcd"),
    "entry":          ("",      "",         "r"),
    "groups":         ("",      "rcd",      ""),
    "group":          ("",      "r",        "rcd"),
    "part of a group": ("",     "",         "rwcd"),
    "bodies":         ("c",     "",         ""),
    "place of bodies": ("",     "",         "rcd"),
    "body":           ("",      "",         "r"),
    "dead":           ("",      "rc",       ""),
    "shelf":          ("",      "",         "rcd"),
    "letter":         ("",      "",         "r"),
    "producers":      ("c",     "",         ""),
    "producer":       ("",      "",         "rw"),
    "ids":            ("c",     "",         ""),
    "ids of a topic": ("c",     "",         ""),
    "id":             ("",      "",         "r"),
    "delayed":        ("rc",    "",         ""),
    "bucket":         ("c",     "",         ""),
    "delayed frame":  ("",      "",         ""),
    "record":         ("r",     "",         ""),
    "cleaner":        ("r",     "r",        ""),
    "candidate":      ("",      "",         ""),
    "staged":         ("rwcd",  "",         ""),
    "staged job":     ("",      "",         "rwcd"),
    "other":          ("",      "",         "rwcd"),
}  # fmt: skip

LEVELS: dict[str, tuple[str, ...]] = {
    "clients": ("clients", "client"),
    "subscribers": ("subscribers", "topic", "registration"),
    "messages": ("messages", "lane", "queue", "entry"),
    "groups": ("groups", "group", "part of a group"),
    "bodies": ("bodies", "place of bodies", "body"),
    "dead": ("dead", "shelf", "shelf", "letter"),
    "producers": ("producers", "producer"),
    "ids": ("ids", "ids of a topic", "ids of a topic", "id"),
    "delayed": ("delayed", "bucket", "delayed frame"),
    "cleaner": ("cleaner", "candidate"),
    "staged": ("staged", "staged job"),
}
"""By the name below ROOT: the kinds of znodes, the deeper the further."""


def kind_of(root: str, path: str) -> str:
    """Which row of the table a znode's path belongs to; what is above ROOT is made as ROOT is."""
    if not path.startswith(f"{root}/"):
        return "root"
    head, *rest = path[len(root) + 1 :].split("/")
    levels = LEVELS.get(head)
    if levels is None:
        return "other"
    kind = levels[min(len(rest), len(levels) - 1)]
    if kind == "registration" and path.endswith(FULL_MARK):
        return "flag"
    if kind == "delayed frame" and rest[1].startswith("m."):
        return "record"
    if kind == "ids of a topic" and len(rest) == 2 and rest[1].startswith(ID_LOG):
        return "id"
    return kind


class Rights:
    """A policy at work: the ACLs of what one client creates, each made once."""

    def __init__(self, access: Access, root: str, mine: frozenset[str]) -> None:
        self.access = access
        self.owner = tuple(each for each in access.subscribers if each in mine)
        """Who we are as a subscriber: what our registrations say."""
        self.cleans = not mine.isdisjoint(access.cleaners)
        """Whether we may do a cleaner's work."""
        self._root = root
        self._cleaners = tuple(_entry(each, _ALL) for each in access.cleaners)
        self._kinds = {kind: acl(self._of_kind(rule)) for kind, rule in TABLE.items()}
        self._readers: dict[tuple[str, ...], tuple[bytes, ...]] = {}
        self.usual = len(self._kinds["letter"]) + max(len(each) + 12 for each in access.subscribers)
        """Bytes of an ACL as most have it."""

    def __call__(self, path: str) -> bytes:
        """The ACL of a znode that we make, by its place."""
        return self._kinds[kind_of(self._root, path)]

    def readers(self, owner: tuple[str, ...]) -> tuple[bytes, ...]:
        """What makes up the ACL of an entry or a body that is for `owner` alone: see `acl`."""
        known = self._readers.get(owner)
        if known is None:
            bits = _bits(TABLE["entry"][2])
            known = self._readers[owner] = (*(_entry(each, bits) for each in owner), *self._cleaners)
        return known

    def accepts(self, owner: tuple[str, ...]) -> bool:
        """Whether a registration's owner is one of the subscribers, so that it may be sent something to."""
        return bool(owner) and set(owner) <= set(self.access.subscribers)

    def differing(self, path: str, found: Mapping[str, int]) -> list[str]:
        """Who may do more or less with a znode than the policy says; `found` is what ZooKeeper tells of its ACL.

        For kinds that have no owner. Cleaners see the hashes of digests, so to them another password is somebody else.
        """
        producers, subscribers, _ = map(_bits, TABLE[kind_of(self._root, path)])
        access, wanted = self.access, dict[str, int]()
        roles = ((access.cleaners, _ALL), (access.producers, producers), (access.subscribers, subscribers))
        for identities, bits in roles:
            for each in identities if bits else ():
                name = each if self.cleans else hidden(each)
                wanted[name] = wanted.get(name, 0) | bits
        return sorted({masked(each) for each in {*wanted, *found} if wanted.get(each) != found.get(each)})

    def _of_kind(self, rule: Rule) -> tuple[bytes, ...]:
        producers, subscribers, owner = map(_bits, rule)
        return (
            *self._cleaners,
            *((_entry("auth:", owner),) if owner else ()),  # ZooKeeper puts in who we are
            *(_entry(each, producers) for each in self.access.producers if producers),
            *(_entry(each, subscribers) for each in self.access.subscribers if subscribers),
        )


def _bits(letters: str) -> int:
    return sum(_BITS[letter] for letter in letters)


def _entry(identity: str, bits: int) -> bytes:
    scheme, _, name = identity.partition(":")
    return acl_entry(bits, scheme, name)


@lru_cache(maxsize=1024)
def acl(entries: tuple[bytes, ...]) -> bytes:
    """An ACL as a create carries it; empty if there are no entries, for the session's default."""
    unique = dict.fromkeys(entries)
    return len(unique).to_bytes(4, "big") + b"".join(unique) if unique else b""
