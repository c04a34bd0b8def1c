"""A tree with a policy works as any other: each feature, with those who have one role only."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import pytest
from kazoo.security import CREATOR_ALL_ACL
from zkms_cleaner.cleaner import Cleaner
from zkms_cleaner.election import Lead
from zkms_cleaner.sweep import Sweeper

import zkms
from tests.support.buses import Connect, Eventually
from zkms.backup.backup import back_up
from zkms.backup.restore import restore
from zkms.replay.stage import Committer, Stage, new_run
from zkms.testing.roots import new_root
from zkms.tree import acl as access
from zkms.tree.paths import Tree
from zkms.tree.records import Registration, decode, encode
from zkms.zookeeper.operations import Operation

from .conftest import ACCESS, Raw, auth, who

BIG = "x" * 20_000


# -- the policy ------------------------------------------------------------------------------------------------------


def test_later_clients_find_the_policy_in_the_tree(carl: zkms.Bus, connect: Connect) -> None:
    """They need not be given it; whoever is given another one is told so."""
    pat, ann = connect("pat"), connect("ann", access=ACCESS)
    assert (
        pat.parts.session.rights.access == ann.parts.session.rights.access == carl.parts.session.rights.access == ACCESS
    )
    other = zkms.Access(producers=[who("mallory")], subscribers=ACCESS.subscribers, cleaners=ACCESS.cleaners)
    with pytest.raises(zkms.InvalidArgument, match="access= says otherwise"):
        connect("ann", access=other)


def test_a_cleaner_has_to_make_the_tree(connect: Connect) -> None:
    """Nobody else could make what is below its root."""
    with pytest.raises(zkms.Unauthorised, match="one of its cleaners has to make it"):
        connect("pat", access=ACCESS)
    connect("carl", access=ACCESS)
    connect("pat", access=ACCESS)


def test_a_tree_that_was_made_without_one_gets_no_policy(hosts: str) -> None:
    """What is in it would stay open."""
    root = new_root()
    with (
        zkms.connect(hosts, root=root),
        pytest.raises(zkms.InvalidArgument, match="was made without access="),
    ):
        zkms.connect(hosts, root=root, auth=auth("carl"), access=ACCESS)


@pytest.mark.parametrize(
    "bad",
    ["ann", "world:anyone", "auth:", "ip:127.0.0.1", "digest:ann:password", "sasl:a\nb", "SASL:ann", ":x", 5, None],
)
def test_only_somebody_in_particular_can_have_a_role(bad: object) -> None:
    """And no error quotes what may be a password."""
    with pytest.raises(zkms.InvalidArgument) as refusal:
        zkms.Access(producers=[bad], subscribers=[who("ann")], cleaners=[who("carl")])  # type: ignore[list-item]
    assert "password'" not in str(refusal.value).replace("'user:password'", "")


def test_a_policy_needs_credentials_and_no_other_acl() -> None:
    """Each mistake is named."""
    with pytest.raises(zkms.InvalidArgument, match="say who they are"):
        zkms.connect(access=ACCESS)
    with pytest.raises(zkms.InvalidArgument, match="not both"):
        zkms.connect(auth=auth("ann"), access=ACCESS, acl=CREATOR_ALL_ACL)
    with pytest.raises(zkms.InvalidArgument, match="1 to 32"):
        zkms.Access(producers=[], subscribers=[who("ann")], cleaners=[who("carl")])
    assert who("ann") not in repr(ACCESS)
    assert "digest:ann" in repr(ACCESS)


def test_every_path_of_the_tree_has_its_kind() -> None:
    """By the place alone."""
    tree = Tree("/r/zkms")
    kinds = {
        "/r": "root", tree.root: "root", tree.topic("t"): "topic", tree.registration("t", "s"): "registration",
        tree.full_flag("t", "s"): "flag", tree.queue("s", "t"): "queue", f"{tree.queue('s', 't')}/f.": "entry",
        tree.ledger("g", "t", 1): "part of a group", tree.body("p", 1): "body", tree.dead_letter("s", "t", 1): "letter",
        tree.id("t", "i"): "id", tree.id_log("t", 1.0): "id", f"{tree.bucket(10)}/m.1.p": "record",
        f"{tree.bucket(10)}/d.1": "delayed frame", f"{tree.root}/doctor-1": "other", "/r/zkmsx": "root",
        tree.staged_part("j", "r", "p"): "staged job", f"{tree.cleaner}/c_0000000001": "candidate",
    }  # fmt: skip
    assert {path: access.kind_of(tree.root, path) for path in kinds} == kinds


def test_the_threat_model_says_the_same_as_the_table() -> None:
    """Kind by kind."""
    text = (Path(__file__).parents[2] / "docs" / "threat-model.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    told = {row[0]: row[2:] for row in rows if len(row) == 5 and row[0] != "kind"}
    rights = {kind: [part.partition(":")[0].strip("-") for part in parts] for kind, parts in told.items()}
    assert rights == {kind: list(rule) for kind, rule in access.TABLE.items()}


# -- roles -----------------------------------------------------------------------------------------------------------


def test_who_has_not_the_role_is_told_so(carl: zkms.Bus, connect: Connect) -> None:
    """A producer does not subscribe, a subscriber does not publish, and neither of them cleans."""
    pat, ann = connect("pat"), connect("ann")
    ann.subscribe("news")
    with pytest.raises(zkms.Unauthorised, match="does not count these credentials among its subscribers"):
        pat.subscribe("news")
    with pytest.raises(zkms.Unauthorised):
        ann.publish("news", 1)
    assert [name.rpartition("_")[0] for name in carl.parts.session.children(carl.parts.tree.cleaner)[0]] == [
        carl.client_id
    ]


def test_a_registration_of_somebody_who_is_no_subscriber_gets_nothing(
    carl: zkms.Bus, connect: Connect, raw: Raw, tree: Tree
) -> None:
    """A producer may make znodes below a topic, to flag a queue; registering itself there gains it nothing."""
    pat, ann = connect("pat"), connect("ann")
    subscription = ann.subscribe("news")
    for number, owner in enumerate([(who("pat"),), (), ("world:anyone",), (who("ann"), who("pat"))]):
        forged = encode(Registration("pat", 10, owner=owner))
        raw("pat").create(tree.registration("news", f"forged-{number}"), forged)
    receipt = pat.publish("news", "secret")
    assert (receipt.pending, dict(receipt.gone)) == ((subscription.id,), {})
    assert subscription.get(timeout=20).data == "secret"


def test_a_subscription_belongs_to_whoever_made_it(carl: zkms.Bus, connect: Connect) -> None:
    """Others cannot read it, nor be members of the group; those with the same credentials can."""
    ann, bob, more = connect("ann"), connect("bob"), connect("ann")
    ann.subscribe("news", name="audit").close()
    ann.create_group("jobs", "workers", partitions=2)
    for options in ({"topic": "news", "name": "audit"}, {"topic": "jobs", "group": "workers"}):
        with pytest.raises(zkms.Unauthorised, match="belongs to digest:ann, and these credentials are not theirs"):
            bob.subscribe(**options)
        assert not more.subscribe(**options).created


def test_a_name_that_others_have_left_something_under_is_refused(
    carl: zkms.Bus, connect: Connect, tree: Tree, eventually: Eventually
) -> None:
    """In a sentence, when subscribing: a rejected message would have no place. When that is gone, the name is free."""
    pat, ann, bob = connect("pat"), connect("ann"), connect("bob")
    first = ann.subscribe("news", name="w")
    pat.publish("news", "bad")
    first.get(timeout=20).reject("no good")
    for topic in ("news", "other"):
        with pytest.raises(zkms.Unauthorised, match=r"'w' is, or was, the name|'w' of 'news' belongs to digest:ann"):
            bob.subscribe(topic, name="w")
    first.unsubscribe()
    for topic in ("news", "other"):
        with pytest.raises(zkms.Unauthorised, match=r"/dead/w: 'w' is, or was, .* have .* its dead letters purged"):
            bob.subscribe(topic, name="w")
    ann.subscribe("news", name="w").unsubscribe()
    carl.purge_dead(subscription="w")
    [candidate] = carl.parts.session.children(tree.cleaner)[0]
    Sweeper(carl.parts.session, tree, grace=0.0).sweep(Lead(f"{tree.cleaner}/{candidate}"))
    second = bob.subscribe("news", name="w")
    pat.publish("news", "bad too")
    second.get(timeout=20).reject("no good")
    eventually(lambda: [letter.data for letter in bob.dead_letters(subscription="w")] == ["bad too"])


def test_a_lane_that_cannot_be_written_is_not_claimed_again_and_again(
    carl: zkms.Bus, connect: Connect, raw: Raw, tree: Tree, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has put themselves where its dead letters belong: it waits longer each time, and goes on when it can."""
    monkeypatch.setattr("zkms.consume.group_member.FIRST_PAUSE", 0.5)
    pat, bob = connect("pat"), connect("bob")
    given: list[float] = []

    def reject(message: zkms.Message) -> None:
        given.append(time.monotonic())
        message.reject("no good")

    bob.subscribe("news", reject, name="w")
    raw("ann").create(tree.dead_of("w"), acl=CREATOR_ALL_ACL)
    pat.publish("news", "bad")
    eventually(lambda: len(given) == 3)
    assert given[1] - given[0] >= 0.5
    assert given[2] - given[1] >= 1.0
    raw("carl").delete(tree.dead_of("w"))
    eventually(lambda: [letter.data for letter in bob.dead_letters(subscription="w")] == ["bad"])


# -- features --------------------------------------------------------------------------------------------------------


def test_live_messages_receipts_and_bodies(
    carl: zkms.Bus, connect: Connect, eventually: Eventually, tree: Tree
) -> None:
    """Small and large, for several; who has acked is known, and who has gone; the producer frees its bodies."""
    pat, ann, bob = connect("pat"), connect("ann"), connect("bob")
    subscriptions = [bus.subscribe("news") for bus in (ann, bob)]
    for data in ("small", BIG, {"id": 1}):
        receipt = pat.publish("news", data)
        assert {s.get(timeout=20).data == data for s in subscriptions} == {True}
        assert set(receipt.wait(20).acked) == {s.id for s in subscriptions}
    receipts = pat.publish_many("news", [BIG] * 20)
    assert [[s.get(timeout=20).data for _ in range(20)] for s in subscriptions] == [[BIG] * 20] * 2
    assert receipts[-1].wait(20).gone == {}
    subscriptions[1].unsubscribe()
    held = ann.subscribe("held", ack="manual")
    receipt = pat.publish("held", "small")
    held.unsubscribe()
    assert set(receipt.wait(20).gone) == {held.id}
    eventually(lambda: not carl.parts.session.children(tree.bodies_of(pat.client_id))[0])


def test_durable_subscriptions_groups_patterns_and_ids(carl: zkms.Bus, connect: Connect) -> None:
    """Read, acked and closed; a repeated id is found out whoever gave it first."""
    pat, zoe, ann, bob = connect("pat"), connect("zoe"), connect("ann"), connect("bob")
    audit = bob.subscribe("users.new", name="audit")
    workers = ann.subscribe("users.new", group="workers", partitions=3)
    every = ann.subscribe("users.*")
    receipt = pat.publish("users.new", 1, key="k", id="once")
    for subscription in (audit, workers, every):
        message = subscription.get(timeout=20)
        assert message.data == 1
        if subscription is not every:
            message.ack()
    assert receipt.wait(20).gone == {}
    assert len(receipt.acked) == 3
    for bus in (pat, zoe):
        with pytest.raises(zkms.DuplicateMessage):
            bus.publish("users.new", 2, id="once")
    audit.unsubscribe()
    workers.unsubscribe()
    assert pat.publish("users.old", 3).pending == (f"{every.id} (users.*)",)


def test_a_group_can_have_as_many_partitions_as_elsewhere(hosts: str) -> None:
    """Though the ACLs of so many znodes are too much for one transaction."""
    root, crowd = new_root(), [who(f"producer-{number}") for number in range(10)]
    many = zkms.Access(producers=crowd, subscribers=[who("ann")], cleaners=[who("carl")])
    with (
        zkms.connect(hosts, root=root, auth=auth("carl"), access=many, cleaner=False) as carl,
        zkms.connect(hosts, root=root, auth=auth("ann")) as ann,
        zkms.connect(hosts, root=root, auth=auth("producer-1")) as producer,
    ):
        assert ann.create_group("jobs", "workers", partitions=1024)
        assert not ann.create_group("jobs", "workers", partitions=1024)
        receipts = producer.publish_many("jobs", map(str, range(50)), key=str)
        assert len(receipts[-1].pending) > 30
        places = (carl.parts.tree.messages, carl.parts.tree.ledgers("workers", "jobs"))
        assert [carl.parts.session.exists(path).numChildren for path in places] == [1024, 1024]


def test_whoever_is_registered_meanwhile_keeps_its_partitions(
    carl: zkms.Bus, connect: Connect, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing of those that were being prepared is left among its own: else it could not be given up."""
    ann, more = connect("ann"), connect("ann")
    monkeypatch.setattr("zkms.zookeeper.session.MAX_TRANSACTION", 5 * 1024)
    ann.parts.durable_registration.make_topic("jobs")
    anns, theirs, lots = ann.parts.session.multi, more.parts.session.multi, []

    def between(lot: list[Operation], **options: float) -> list[object]:
        lots.append(lot)
        if len(lots) == 2:
            assert {each.path.rpartition("/")[0] for each in lot[3:]} == {tree.ledgers("workers", "jobs")}
            monkeypatch.setattr(more.parts.session, "multi", after)
            assert more.create_group("jobs", "workers", partitions=2)
        return anns(lot, **options)

    def after(operations: list[Operation], **options: float) -> list[object]:
        """The second lot is made when the others have seen what the first one has left, and not enrolled yet."""
        monkeypatch.setattr(more.parts.session, "multi", theirs)
        anns(lots[-1])
        return theirs(operations, **options)

    monkeypatch.setattr(ann.parts.session, "multi", between)
    with pytest.raises(zkms.GroupMismatch, match="with 2 partitions instead of 64"):
        ann.create_group("jobs", "workers", partitions=64)
    assert sorted(carl.parts.session.children(tree.ledgers("workers", "jobs"))[0]) == ["0", "1"]
    more.parts.durable_registration.unregister("jobs", "workers")


def test_dead_letters_are_their_owners(carl: zkms.Bus, connect: Connect, eventually: Eventually) -> None:
    """Who rejects a message can look at it and requeue it, and so can the cleaner; nobody else sees it."""
    pat, bob, ann = connect("pat"), connect("bob"), connect("ann")
    audit = bob.subscribe("news", name="audit")
    for bus in (bob, carl):
        pat.publish("news", "bad")
        audit.get(timeout=20).reject("no good")
        eventually(lambda: bob.dead_letters(subscription="audit"))
        [letter] = bus.dead_letters(subscription="audit")
        assert letter.data == "bad"
        with pytest.raises(zkms.Unauthorised):
            ann.dead_letters(subscription="audit")
        bus.requeue(letter)
        message = audit.get(timeout=20)
        assert message.data == "bad"
        message.ack()


@pytest.mark.parametrize("owner", [(who("bob"),), ()])
def test_a_letter_is_requeued_for_its_owner_alone(
    carl: zkms.Bus, connect: Connect, raw: Raw, tree: Tree, eventually: Eventually, owner: tuple[str, ...]
) -> None:
    """Not for another subscriber, or nobody, that has put a registration of its own in place of its owner's."""
    pat, ann = connect("pat"), connect("ann")
    diary = ann.subscribe("news", name="diary")
    pat.publish("news", "for-a")
    diary.get(timeout=20).reject("no good")
    eventually(lambda: ann.dead_letters(subscription="diary"))
    diary.close()
    [letter] = ann.dead_letters(subscription="diary")
    registration, bob = tree.registration("news", "diary"), raw("bob")
    forged = msgspec.structs.replace(decode(bob.get(registration)[0], Registration), owner=owner)
    bob.delete(registration)
    bob.create(registration, encode(forged))
    for bus in (ann, carl):
        with pytest.raises(zkms.Unauthorised, match=r"belongs to (digest:bob|nobody) now, and the letter does not"):
            bus.requeue(letter)
    assert len(ann.dead_letters(subscription="diary")) == 1


def test_delayed_messages_are_moved_by_the_cleaner(carl: zkms.Bus, connect: Connect) -> None:
    """Their receipts follow them, though their publisher may not look at where they wait."""
    pat, ann, bob = connect("pat"), connect("ann"), connect("bob")
    subscriptions = [ann.subscribe("news"), bob.subscribe("news", name="audit")]
    receipts = [pat.publish("news", data, delay=0.5) for data in ("small", BIG)]
    assert all(receipt.delayed for receipt in receipts)
    for data in ("small", BIG):
        for subscription in subscriptions:
            message = subscription.get(timeout=30)
            assert message.data == data
            if subscription is subscriptions[1]:
                message.ack()
    for receipt in receipts:
        assert set(receipt.wait(30).acked) == {subscriptions[0].id, "audit"}


def test_requests_transactions_and_caches(carl: zkms.Bus, connect: Connect) -> None:
    """For those who are both producer and subscriber."""
    zoe, more = connect("zoe"), connect("zoe")
    answering = zoe.subscribe("who", lambda message: message.reply("me"))
    answers = more.request("who", None, timeout=20)
    assert [answer.data for answer in answers] == ["me"]
    answering.unsubscribe()
    out = more.subscribe("out")
    work = zoe.subscribe("in", name="work")
    zoe.publish("in", 1)
    with zoe.transaction() as transaction:
        transaction.ack(work.get(timeout=20))
        transaction.publish("out", 2)
    assert out.get(timeout=20).data == 2
    with zkms.Cache(zoe, "users") as one, zkms.Cache(more, "users") as other:
        other.set("k", 1)
        assert one.invalidate("k", wait=20)
        assert other.get("k") is None


def test_staged_publishing(carl: zkms.Bus, connect: Connect, hosts: str, tree: Tree) -> None:
    """What one process has put aside, another of the same credentials publishes."""
    pat, ann = connect("pat"), connect("ann")
    subscription = ann.subscribe("news")
    run = new_run()
    stage = Stage(pat.parts.session, tree, "etl", run)
    for number in range(5):
        stage.add("news", number)
    committer = Committer(
        lambda name: zkms.connect(hosts, root=tree.root, auth=auth("pat"), producer=name, cleaner=False), "etl"
    )
    assert committer.commit(run, 0, stage.finish()) == 5
    assert [subscription.get(timeout=20).data for _ in range(5)] == [0, 1, 2, 3, 4]


def test_limits_hold(carl: zkms.Bus, connect: Connect) -> None:
    """A live queue collapses into a gap, others reject; what is for others is not dropped by a producer."""
    pat, ann = connect("pat"), connect("ann")
    gaps: list[zkms.Gap] = []
    live = ann.subscribe("live", limit=2, ack="manual", on_gap=gaps.append)
    ann.subscribe("kept", name="kept", limit=2)
    ann.subscribe("newest", name="newest", limit=2, overflow="drop-oldest")
    for _ in range(6):
        pat.publish("live", 1)
    assert pat.publish("live", 1).gone == {live.id: "its queue is full"}
    for topic in ("kept", "newest"):
        for _ in range(2):
            pat.publish(topic, 1)
        with pytest.raises(zkms.QueueFull):
            pat.publish(topic, 1)
    deadline = time.monotonic() + 20
    while not gaps and time.monotonic() < deadline:
        for message in live.fetch(10, timeout=0.1):
            message.ack()
    assert gaps


def test_the_cleaner_purges_what_the_dead_have_left(carl: zkms.Bus, connect: Connect, eventually: Eventually) -> None:
    """A queue of a subscriber that is gone, with what was in it, and what expired in one that is not."""
    pat, ann, bob = connect("pat"), connect("ann"), connect("bob")
    bob.subscribe("news", name="audit", max_age=0.1)
    lost = ann.subscribe("news", ack="manual")
    receipt = pat.publish("news", BIG)
    ann.parts.session.close()  # as if killed: nothing is tidied up
    cleaner = Cleaner(carl.parts.session, carl.parts.tree, "second", interval=0.2, grace=0.2)
    carl.parts.cleaner.close()
    cleaner.start()
    try:
        eventually(lambda: carl.parts.session.exists(carl.parts.tree.queue(lost.id, "news")) is None)
        eventually(lambda: carl.parts.session.exists(carl.parts.tree.queue("audit", "news")).numChildren == 0)
        assert set(receipt.wait(20).gone) == {lost.id, "audit"}
    finally:
        cleaner.close()


def test_asyncio_goes_by_the_policy_too(carl: zkms.Bus, connect: Connect, hosts: str, tree: Tree) -> None:
    """What it publishes is for the subscriber alone, and its receipt tells who has acked."""
    subscription = connect("ann").subscribe("news", lambda _message: None)

    async def publish() -> tuple[str, ...]:
        async with zkms.aio.connect(hosts, root=tree.root, auth=auth("pat"), access=ACCESS) as bus:
            receipt = await bus.publish("news", "hello")
            await receipt.wait(20)
            return receipt.acked

    assert asyncio.run(publish()) == (subscription.id,)


def test_a_backup_can_be_made_of_it_but_not_put_back(
    carl: zkms.Bus, connect: Connect, tree: Tree, tmp_path: Path
) -> None:
    """Whoever restores would own what it makes."""
    connect("ann").subscribe("news", name="diary").close()
    back_up(carl.parts.session, tree, tmp_path / "file")
    with pytest.raises(zkms.StoreError, match="has separate roles"):
        restore(carl.parts.session, tree, tmp_path / "file", add=True)
