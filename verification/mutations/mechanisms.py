"""The mechanisms, each with the edit that removes it from the sources and the test that fails without it.

An edit quotes the sources. If they have changed, the check refuses to run: a mutation that is not applied would prove
nothing.
"""

from __future__ import annotations

from typing import NamedTuple


class Mechanism(NamedTuple):
    """Code that a guarantee depends on, and the edit that removes it."""

    name: str
    file: str
    old: str
    """Found exactly once in the file."""
    new: str
    test: str
    """As pytest calls it: passes with the mechanism, fails without it."""


MECHANISMS = (
    # -- publishing ----------------------------------------------------------------------------------------------------
    Mechanism(
        "epoch check at publish",
        "zkms/publish/shipment.py",
        "Check(tree.topic(self.topic), snapshot.epoch),",
        "Check(tree.topic(self.topic), -1),",
        "tests/publish/test_audience.py::test_a_late_watch_does_not_leave_a_newcomer_out",
    ),
    Mechanism(
        "check of the list of patterns",
        "zkms/publish/shipment.py",
        "Check(tree.subscribers, snapshot.roll),",
        "Check(tree.subscribers, -1),",
        "tests/publish/test_audience.py::test_a_late_watch_does_not_leave_a_new_pattern_out",
    ),
    Mechanism(
        "nobody is believed only at a confirmed epoch",
        "zkms/publish/pipeline.py",
        "own = [Check(self._tree.topic(topic), snapshot.epoch)] if snapshot.epoch >= 0 else []",
        "own = [Check(self._tree.topic(topic), -1)] if snapshot.epoch >= 0 else []",
        "tests/publish/test_audience.py::test_nobody_is_believed_only_after_the_leader_has_confirmed_it",
    ),
    Mechanism(
        "no way back to an older view of the members",
        "zkms/publish/audience.py",
        "return self._known.get(topic, snapshot).ticket <= snapshot.ticket",
        "return True",
        "tests/publish/test_audience.py::test_a_publisher_does_not_go_back_to_an_older_view",
    ),
    Mechanism(
        "what is read again and again is watched once",
        "zkms/publish/audience.py",
        "@dataclass(frozen=True, slots=True)\nclass _Expiry:",
        "@dataclass(frozen=True, slots=True, eq=False)\nclass _Expiry:",
        "tests/publish/test_audience.py::test_subscribers_that_come_and_go_leave_no_watches_and_no_snapshots_behind",
    ),
    Mechanism(
        "one transaction for the whole fan-out",
        "zkms/zookeeper/session.py",
        "        self._transact(self._transaction(operations), operations, partial(_settle, future))\n",
        "        done: list[Any] = []\n\n"
        "        def one_by_one(results: Any, error: Any) -> None:\n"
        "            done.extend(results or ())\n"
        "            if error is None and len(done) < len(operations):\n"
        "                one = [operations[len(done)]]\n"
        "                self._transact(self._transaction(one), one, one_by_one)\n"
        "            elif isinstance(error, TransactionFailed):\n"
        "                _settle(future, None, TransactionFailed(len(done), error.cause, error.operation))\n"
        "            else:\n"
        "                _settle(future, done, error)\n\n"
        "        one_by_one((), None)\n",
        "tests/publish/test_fan_out.py::test_nobody_gets_half_a_fan_out",
    ),
    Mechanism(
        "producer's sequence tells what is stored",
        "zkms/publish/pipeline.py",
        "if stored is not None and shipment.last <= stored:",
        "if stored is None:",
        "tests/publish/test_producer.py::test_a_lost_reply_leads_to_one_copy",
    ),
    Mechanism(
        "producer's fence passes all that is in flight",
        "zkms/publish/producer.py",
        "                self._session.multi(self._bumps(mine, stat.version))\n"
        "            except TransactionFailed as error:\n"
        "                if failed_with(error, BadVersion) or failed_with(error, NodeMissing):\n"
        "                    continue\n"
        "                raise error.cause from error\n"
        "            self._version, self._claimed = stat.version + WINDOW, True\n",
        "                self._session.multi(self._bumps(mine, stat.version)[:1])\n"
        "            except TransactionFailed as error:\n"
        "                if failed_with(error, BadVersion) or failed_with(error, NodeMissing):\n"
        "                    continue\n"
        "                raise error.cause from error\n"
        "            self._version, self._claimed = stat.version + 1, True\n",
        "tests/publish/test_producer.py::test_a_fence_tells_what_is_stored_and_voids_what_was_sent_before",
    ),
    Mechanism(
        "message ids in the transaction",
        "zkms/publish/shipment.py",
        "        operations += self.remember(tree, producer)\n",
        "",
        "tests/guarantees/test_mechanisms.py::test_a_message_of_the_same_id_is_stored_once",
    ),
    Mechanism(
        "bodies are freed only when no queue names them",
        "zkms/publish/bodies.py",
        "sorted(kept.keys() - named)",
        "sorted(kept)",
        "tests/publish/test_bodies.py::test_nothing_unread_is_freed",
    ),
    Mechanism(
        "look at a queue's length before filling it",
        "zkms/publish/limits.py",
        "        return self._look(topic, snapshot, targets, short, need, deadline)\n",
        "        return True\n",
        "tests/publish/test_limits.py::test_with_the_look_it_does_not",
    ),
    # -- receiving -----------------------------------------------------------------------------------------------------
    Mechanism(
        "frame CRC",
        "zkms/message/frame.py",
        "if crc32(body) != checksum:",
        "if not checksum and not body:",
        "tests/message/test_frame.py::test_every_flipped_bit_is_noticed",
    ),
    Mechanism(
        "persistent watch: the next number is looked at",
        "zkms/deliver/reader.py",
        "if not entry.foreign and entry.sequence != self._created:",
        "if not entry.foreign and entry.sequence < 0:",
        "tests/deliver/test_watching.py::test_an_event_that_does_not_come_is_noticed_at_the_next_number",
    ),
    Mechanism(
        "gap entry when a new session registers",
        "zkms/subscribe/live_registration.py",
        "            if gap is not None:\n                data = encode(GapRecord(gap))\n",
        "            if gap is not None and not gap:\n                data = encode(GapRecord(gap))\n",
        "tests/subscribe/test_expiry.py::test_after_an_expiry_old_messages_come_first_then_one_gap_then_the_new_ones",
    ),
    Mechanism(
        "gap event of a queue that was full",
        "zkms/deliver/live.py",
        "        self._announce(Gap(self.topic, self.id, record.reason))\n",
        "",
        "tests/publish/test_limits.py::test_a_miss_is_announced",
    ),
    Mechanism(
        "quarantine keeps what is not ours",
        "zkms/deliver/quarantine.py",
        "        operations.append(Create(kept, raw))\n",
        "        fits = False\n",
        "tests/deliver/test_garbage.py::test_the_same_garbage_twice_is_kept_twice",
    ),
    # -- durable subscriptions and groups ------------------------------------------------------------------------------
    Mechanism(
        "ledger's version in every ack",
        "zkms/consume/ledger_commits.py",
        "commit.operations = [SetData(self.path, encode(ledger), self._version), *operations]",
        "commit.operations = [SetData(self.path, encode(ledger), -1), *operations]",
        "tests/consume/test_durable.py::test_a_reader_that_is_asked_to_takes_over",
    ),
    Mechanism(
        "a takeover is a write",
        "zkms/consume/claim.py",
        "            written = session.multi([SetData(path, encode(mine), stat.version)], deadline=deadline)\n",
        "            return Claim(mine, stat.version, not former, stat.mzxid)\n",
        "tests/guarantees/test_mechanisms.py::test_a_reader_that_was_replaced_cannot_ack",
    ),
    Mechanism(
        "the ledger is asked when an ack's reply is lost",
        "zkms/consume/ledger_commits.py",
        "value[1].version == commit.version + 1 and commit.unsure:",
        "value[1].version == commit.version:",
        "tests/guarantees/test_lost_replies.py::test_a_get_and_its_ack_are_done_once[durable]",
    ),
    Mechanism(
        "the ledger knows what is done of a frame",
        "zkms/consume/ledger_commits.py",
        "self.parts: dict[int, Part] = dict(claimed.ledger.parts)",
        "self.parts: dict[int, Part] = {}",
        "tests/guarantees/test_mechanisms.py::test_a_frame_that_is_half_done_goes_on_in_its_middle",
    ),
    Mechanism(
        "a partition is released when nothing of it is in flight",
        "zkms/consume/dispatcher.py",
        "            return self.in_flight == 0\n",
        "            return True\n",
        "tests/guarantees/test_mechanisms.py::test_a_partition_moves_when_the_work_in_hand_is_done",
    ),
    Mechanism(
        "messages of a key wait for the one that failed",
        "zkms/consume/dispatcher.py",
        'return DURABLE if self._policy.kind == "durable" else message.key',
        'return None if self._policy.kind == "durable" else None',
        "tests/consume/test_group.py::test_what_fails_is_tried_again_and_ends_as_a_dead_letter",
    ),
    Mechanism(
        "reservations after an owner that died",
        "zkms/consume/dispatcher.py",
        "self._careful = CAREFUL if careful else 0",
        "self._careful = 0",
        "tests/guarantees/test_dying_readers.py::test_with_reservations_the_third_reader_to_die_is_the_last",
    ),
    Mechanism(
        "acks and publishes are one transaction",
        "zkms/transaction.py",
        "[operation for ack in acks for operation in ack.operations])",
        "[])",
        "tests/bus/test_transaction.py::test_one_whose_place_was_taken_publishes_nothing",
    ),
    # -- the cleaner and what is delayed -------------------------------------------------------------------------------
    Mechanism(
        "fencing of the cleaner",
        "cleaner/zkms_cleaner/election.py",
        "return (Check(self.path, -1),)",
        "return ()",
        "tests/cleaner/test_sweep.py::test_without_the_lead_nothing_is_changed",
    ),
    Mechanism(
        "proof that nobody is registered",
        "cleaner/zkms_cleaner/sweep.py",
        "            operations += absent(registration)\n",
        "            operations += []\n",
        "tests/cleaner/test_sweep.py::test_a_registration_that_appears_between_finding_and_condemning_wins",
    ),
    Mechanism(
        "a queue is condemned at the version that was read",
        "cleaner/zkms_cleaner/sweep.py",
        "[SetData(finding.path, gone, finding.version)]",
        "[SetData(finding.path, gone, -1)]",
        "tests/cleaner/test_sweep.py::test_a_queue_that_was_written_between_finding_and_condemning_stays",
    ),
    Mechanism(
        "a delayed frame is deleted by what publishes it",
        "cleaner/zkms_cleaner/due.py",
        "operations += [Create(due.item.record(self._tree), moved), Delete(due.item.path(self._tree))]",
        "operations += [SetData(self._tree.bucket(due.item.bucket), moved)]",
        "tests/publish/test_delayed_faults.py::test_two_leaders_at_once_move_a_message_once",
    ),
    Mechanism(
        "the epoch is checked when a delayed frame is moved",
        "cleaner/zkms_cleaner/due.py",
        "proof: tuple[Operation, ...] = (checked,) if snapshot.epoch >= 0 else absent(own)",
        "proof: tuple[Operation, ...] = ()",
        "tests/publish/test_delayed_faults.py::test_who_subscribes_while_a_message_is_moved_gets_it[checked]",
    ),
    # -- the cache -----------------------------------------------------------------------------------------------------
    Mechanism(
        "load-race guard of the cache",
        "zkms/cache/store.py",
        "        if not self._tickets.valid(ticket, key, tags):\n",
        "        if not self._tickets:\n",
        "tests/cache/test_coherence.py::test_a_value_that_was_being_loaded_when_it_changed_is_not_kept",
    ),
    Mechanism(
        "older loads are not joined",
        "zkms/cache/store.py",
        "if flight is not None and self._valid(flight) and clock() - flight.began < patience:",
        "if flight is not None and clock() - flight.began < patience:",
        "tests/cache/test_coherence.py::test_a_reader_that_comes_after_an_invalidation_does_not_join_an_older_load",
    ),
    Mechanism(
        "trust ends before others give a node up",
        "zkms/cache/pulse.py",
        "self._store.until = max(self._store.until, sent + bound)",
        "self._store.until = sent + bound + 1e6",
        "tests/cache/test_coherence.py::test_a_node_cut_off_for_longer_than_its_session_serves_nothing_old",
    ),
    # -- who may do what -----------------------------------------------------------------------------------------------
    Mechanism(
        "an entry is for its owner alone",
        "zkms/tree/acl.py",
        "(*(_entry(each, bits) for each in owner), *self._cleaners)",
        "(*(_entry(each, bits) for each in self.access.subscribers), *self._cleaners)",
        "tests/security/test_roles.py::test_a_subscriber_reads_and_removes_only_its_own",
    ),
    Mechanism(
        "only subscribers are sent something",
        "zkms/tree/acl.py",
        "return bool(owner) and set(owner) <= set(self.access.subscribers)",
        "return bool(owner)",
        "tests/security/test_access.py::test_a_registration_of_somebody_who_is_no_subscriber_gets_nothing",
    ),
)
