"""Every znode path of zkms, spelled here and nowhere else.

    ROOT                                layout version and policy (acl.py), written once the rest exists
      clients/ID                        ephemeral: one per connected process (host, pid, version)
      subscribers                       `Patterns`: the topic patterns in use
      subscribers/TOPIC                 its data version is the membership epoch: bumped by every (un)subscribe and flag
      subscribers/TOPIC/SUBSCRIPTION    a `Registration`: ephemeral if live, persistent if durable or a group
      subscribers/TOPIC/SUBSCRIPTION!   persistent flag: the queue is over its limit, publishers skip it
      messages/QUEUE/TOPIC              a queue; its data is a `QueueState`
      messages/QUEUE/TOPIC/ENTRY        sequential persistent: a frame of 1..n messages, a pointer to one, or a gap
      groups/SUBSCRIPTION/TOPIC         a durable subscription or a group: its `GroupPlan`
      groups/SUBSCRIPTION/TOPIC/members/CLIENT  ephemeral: a process that can read it, its `MemberState`
      groups/SUBSCRIPTION/TOPIC/lanes/N `Ledger`: who reads partition N, and how far; its version is the fence
      bodies/PRODUCER/NUMBER            a frame that was too big for a copy in every queue
      delayed/BUCKET/ENTRY              a frame that is not due yet, or a `Moved` record: see delayed_names.py
      ids/TOPIC/SHARD/HASH              an `IdRecord`: a message id that must not be stored again for a while
      ids/TOPIC/w.SECONDS.SEQUENCE      a log of the hashes of a frame's ids, by which the cleaner forgets them
      dead/SUBSCRIPTION/TOPIC/ENTRY     dead letters, and entries that zkms did not make, unchanged
      producers/ID                      `ProducerState`: last sequence number, for exactly-once publish
      cleaner/CANDIDATE                 ephemeral sequential: a candidate for election; the lowest leads
      restores                          `Restores`: which restore may write, and how far each file got
      staged/JOB                        `Job` of replay/stage.py: what it publishes, and how far it is
      staged/JOB/RUN                    the number of bytes staged below it
      staged/JOB/RUN/PART/NUMBER        messages staged by one process until the job is committed

Live and durable subscriptions have one queue of their own name; a group has one for each partition, `GROUP#N`.

entry.py has the names of entries, records.py the data of znodes.
"""

from __future__ import annotations

import re
from hashlib import blake2b

import msgspec

from zkms.names import FULL_MARK, PARTITION_MARK
from zkms.tree.records import Registration

LAYOUT = 2
ID_LOG = "w."
_HASH = re.compile(r"[0-9a-f]{32}")


class Tree(msgspec.Struct, frozen=True):
    """The paths below one root."""

    root: str

    @property
    def clients(self) -> str:
        """Parent of the connected processes."""
        return f"{self.root}/clients"

    @property
    def subscribers(self) -> str:
        """Parent of the topics."""
        return f"{self.root}/subscribers"

    @property
    def messages(self) -> str:
        """Parent of the queues."""
        return f"{self.root}/messages"

    @property
    def bodies(self) -> str:
        """Parent of the producers' bodies."""
        return f"{self.root}/bodies"

    @property
    def dead(self) -> str:
        """Parent of the dead letters, and of quarantined entries."""
        return f"{self.root}/dead"

    @property
    def producers(self) -> str:
        """Parent of the producers' sequence numbers."""
        return f"{self.root}/producers"

    @property
    def cleaner(self) -> str:
        """Parent of the candidates for the cleaner's election."""
        return f"{self.root}/cleaner"

    @property
    def groups(self) -> str:
        """Parent of the state of durable subscriptions and groups."""
        return f"{self.root}/groups"

    @property
    def delayed(self) -> str:
        """Parent of the buckets of delayed frames."""
        return f"{self.root}/delayed"

    def bucket(self, begins: int) -> str:
        """The parent of the frames that become due in the ten seconds from then on."""
        return f"{self.root}/delayed/{begins:012d}"

    @property
    def ids(self) -> str:
        """Parent of the remembered message ids."""
        return f"{self.root}/ids"

    @property
    def restores(self) -> str:
        """The state of restores; made by the first."""
        return f"{self.root}/restores"

    @property
    def staged(self) -> str:
        """Parent of the jobs that publish in two steps; made by the first."""
        return f"{self.root}/staged"

    @property
    def skeleton(self) -> tuple[str, ...]:
        """What exists in every zkms tree, in the order of creation."""
        return (
            self.clients, self.subscribers, self.messages, self.bodies, self.dead, self.producers, self.cleaner,
            self.groups, self.delayed, self.ids,
        )  # fmt: skip

    def client(self, client: str) -> str:
        """One connected process."""
        return f"{self.clients}/{client}"

    def topic(self, topic: str) -> str:
        """A topic: parent of its registrations, bearer of its epoch."""
        return f"{self.subscribers}/{topic}"

    def registration(self, topic: str, subscription: str) -> str:
        """Who subscribes to a topic."""
        return f"{self.subscribers}/{topic}/{subscription}"

    def full_flag(self, topic: str, subscription: str) -> str:
        """Exists while publishers skip the subscription's queue, which is over its limit."""
        return f"{self.subscribers}/{topic}/{subscription}{FULL_MARK}"

    def subscription(self, queue: str) -> str:
        """Parent of the queues of that name."""
        return f"{self.messages}/{queue}"

    def queue(self, queue: str, topic: str) -> str:
        """The queue of that name for one topic."""
        return f"{self.messages}/{queue}/{topic}"

    def group(self, subscription: str, topic: str) -> str:
        """The state of a durable subscription or a group."""
        return f"{self.groups}/{subscription}/{topic}"

    def members(self, subscription: str, topic: str) -> str:
        """Parent of its members."""
        return f"{self.groups}/{subscription}/{topic}/members"

    def member(self, subscription: str, topic: str, client: str) -> str:
        """One member."""
        return f"{self.groups}/{subscription}/{topic}/members/{client}"

    def ledgers(self, subscription: str, topic: str) -> str:
        """Parent of the ledgers."""
        return f"{self.groups}/{subscription}/{topic}/lanes"

    def ledger(self, subscription: str, topic: str, partition: int) -> str:
        """The ledger of a partition."""
        return f"{self.groups}/{subscription}/{topic}/lanes/{partition}"

    def bodies_of(self, producer: str) -> str:
        """Parent of one producer's bodies."""
        return f"{self.bodies}/{producer}"

    def body(self, producer: str, number: int) -> str:
        """A frame that entries of several queues point to; its number is that of its first message."""
        return f"{self.bodies}/{producer}/{number}"

    def dead_of(self, subscription: str) -> str:
        """Parent of one subscription's dead queues."""
        return f"{self.dead}/{subscription}"

    def dead_queue(self, subscription: str, topic: str) -> str:
        """The dead letters and quarantined entries of a subscription's queue."""
        return f"{self.dead}/{subscription}/{topic}"

    def id(self, topic: str, id: str) -> str:
        """A remembered message id."""
        digest = id_hash(id)
        return f"{self.ids}/{topic}/{digest[:2]}/{digest[2:]}"

    def id_log(self, topic: str, at: float) -> str:
        """The log of a frame's ids; ZooKeeper appends the sequence."""
        return f"{self.ids}/{topic}/{ID_LOG}{int(at)}."

    def dead_letter(self, subscription: str, topic: str, size: int) -> str:
        """A new dead letter; ZooKeeper appends the sequence."""
        return f"{self.dead_queue(subscription, topic)}/d.1.{size}."

    def staged_job(self, job: str) -> str:
        """A job that publishes in two steps."""
        return f"{self.staged}/{job}"

    def staged_run(self, job: str, run: str) -> str:
        """Parent of the messages staged for one run of a job."""
        return f"{self.staged}/{job}/{run}"

    def staged_part(self, job: str, run: str, part: str) -> str:
        """Parent of the messages staged by one process."""
        return f"{self.staged}/{job}/{run}/{part}"

    def producer(self, producer: str) -> str:
        """A producer's last sequence number."""
        return f"{self.producers}/{producer}"


def id_hash(id: str) -> str:
    """Return the hash under which a message id is remembered."""
    return blake2b(id.encode(), digest_size=16).hexdigest()


def id_log_time(name: str) -> int:
    """Return when a log of ids was made, in seconds since the epoch; -1 if the name is not that of a log."""
    seconds = name.removeprefix(ID_LOG).partition(".")[0]
    return int(seconds) if name.startswith(ID_LOG) and seconds.isascii() and seconds.isdigit() else -1


def hashes_in(topic_path: str, data: bytes) -> list[str]:
    """Return the paths of the ids in a log."""
    names = data.decode("ascii", "replace").split()
    return [f"{topic_path}/{name[:2]}/{name[2:]}" for name in names if _HASH.fullmatch(name)]


def queues_of(subscription: str, registration: Registration) -> list[str]:
    """Return the names of a subscription's queues, in the order of its partitions."""
    if registration.kind != "group":
        return [subscription]
    return [queue_of(subscription, number) for number in range(registration.partitions)]


def queue_of(group: str, partition: int) -> str:
    """Return the name of the queue of a group's partition."""
    return f"{group}{PARTITION_MARK}{partition}"


def subscription_of(queue: str) -> str:
    """Return the subscription that a queue belongs to, by the queue's name."""
    return queue.partition(PARTITION_MARK)[0]
