"""The ACL of every znode, for trees in which producers, subscribers and cleaners get only the rights that they need.

`zkms.connect(access=zkms.Access(...))` makes a tree in which the path of a znode decides its ACL. The table below is
the whole policy: r(ead and list), w(rite), c(reate children), d(elete children). The owner is the client that created
the znode; the owner of a queue's entries and of bodies is the subscriber that they are for, whose identity is in its
registration. Cleaners have all rights. Nobody else has any.

So a producer can add to a queue, and can see how many entries wait there and how large they are: limits, receipts and
the freeing of bodies need that. It can neither read nor remove them, so small frames are not stored in names here.
ZooKeeper checks the right to delete at the parent: where many clients share a parent and each removes its own znode
(`clients`, a topic's registrations), they can remove each other's.

The policy is stored in ROOT, which only cleaners can write: later clients follow it.
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
"""The rights of producers, of subscribers and of the znode's owner."""

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
"""By the name below ROOT: the kinds of znodes, one for each level."""


def kind_of(root: str, path: str) -> str:
    """Return the row of the table that a path belongs to; znodes above ROOT get the ACL of ROOT."""
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
    """Applies a policy: returns the ACLs of the znodes that one client creates."""

    def __init__(self, access: Access, root: str, mine: frozenset[str]) -> None:
        self.access = access
        self.owner = tuple(each for each in access.subscribers if each in mine)
        """Our identities as a subscriber, which our registrations name."""
        self.cleans = not mine.isdisjoint(access.cleaners)
        """Whether we are a cleaner."""
        self._root = root
        self._cleaners = tuple(_entry(each, _ALL) for each in access.cleaners)
        self._kinds = {kind: acl(self._of_kind(rule)) for kind, rule in TABLE.items()}
        self._readers: dict[tuple[str, ...], tuple[bytes, ...]] = {}
        self.usual = len(self._kinds["letter"]) + max(len(each) + 12 for each in access.subscribers)
        """Bytes of a typical ACL."""

    def __call__(self, path: str) -> bytes:
        """Return the ACL of a znode that we create, by its path."""
        return self._kinds[kind_of(self._root, path)]

    def readers(self, owner: tuple[str, ...]) -> tuple[bytes, ...]:
        """Return the parts of the ACL of an entry or body for `owner` alone: see `acl`."""
        known = self._readers.get(owner)
        if known is None:
            bits = _bits(TABLE["entry"][2])
            known = self._readers[owner] = (*(_entry(each, bits) for each in owner), *self._cleaners)
        return known

    def accepts(self, owner: tuple[str, ...]) -> bool:
        """Whether a registration's owner is one of the subscribers, so that publishers may send to it."""
        return bool(owner) and set(owner) <= set(self.access.subscribers)

    def differing(self, path: str, found: Mapping[str, int]) -> list[str]:
        """Return the identities whose rights to a znode differ from the policy; `found` is its ACL.

        For kinds without an owner. Only cleaners see the hashes of digests, and so notice another password.
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
            *((_entry("auth:", owner),) if owner else ()),  # ZooKeeper inserts our identities
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
    """Encode an ACL for a create; empty if there are no entries, which means the session's default."""
    unique = dict.fromkeys(entries)
    return len(unique).to_bytes(4, "big") + b"".join(unique) if unique else b""
