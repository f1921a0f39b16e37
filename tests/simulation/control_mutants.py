"""Bugs worth seeding into the control plane, and what catches each.

Most are caught by simulated runs, whose seeds are kept.  A bug that takes one exact story rather than chance
is caught by the test that tells it.
"""

from typing import NamedTuple


class Runs(NamedTuple):
    """Runs of which one shows the bug, and what it breaks."""

    first_seed: int
    seeds: int
    flavour: str
    nodes: int
    breaks: str


class ControlMutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    caught_by: Runs | str
    """Simulated runs, or the tests that tell the one exact story."""


B = "tests/unit/broker"
DRIVER, FORWARDING, LIFE = (
    f"{B}/coordination/test_controller_driver.py",
    f"{B}/cluster/test_forwarding.py",
    f"{B}/cluster/test_lifecycle.py",
)

MUTANTS = [
    ControlMutant(
        "metadata is shown before it is committed",
        "broker/coordination/controller_driver.py",
        "        return self._driver.propose(encode_bundle(records), _ignore) - 1\n",
        "        offset = self._driver.propose(encode_bundle(records), _ignore) - 1\n"
        "        self.replica.handle_entry(encode_bundle(records), offset)\n"
        "        return offset\n",
        Runs(1, 1, "churn", 3, "image is a prefix"),
    ),
    ControlMutant(
        "the broker epoch of an ISR member is ignored",
        "controller/partitions.py",
        "    return broker_epoch == broker.epoch",
        "    return True",
        Runs(1, 16, "brokers", 3, "no ghost in the ISR"),
    ),
    ControlMutant(
        "a leader is elected outside the ISR",
        "controller/elections.py",
        "    return next((each for each in partition.replicas if each in eligible and may(each)), NO_LEADER)",
        "    return next((each for each in partition.replicas if may(each)), NO_LEADER)",
        Runs(1, 1, "brokers", 3, "leader from ISR or ELR"),
    ),
    ControlMutant(
        "a topic id is used again",
        "controller/topics.py",
        "    topic_id = chance.new_uuid()\n    while topic_id in image.topics:",
        "    topic_id = Uuid(topic.name.encode().ljust(16)[:16])\n    while topic_id in image.topics:",
        Runs(1, 1, "calm", 3, "topic ids are never used again"),
    ),
    ControlMutant(
        "a request is answered before it is committed",
        "broker/coordination/controller_driver.py",
        "        return self._own_committed_offset\n",
        "        return self._driver.status.last_index - 1\n",
        Runs(1, 16, "churn", 3, "a stale controller is not obeyed"),
    ),
    ControlMutant(
        "a stale controller is obeyed",
        "broker/coordination/host.py",
        "        if not reply.needs_leadership:",
        "        if True:",
        Runs(1, 16, "churn", 3, "a stale controller is not obeyed"),
    ),
    ControlMutant(
        "a later leadership vouches for what an earlier one saw",
        "broker/coordination/host.py",
        "        if epoch != self.epoch:\n            # What it was made from",
        "        if False:\n            # What it was made from",
        f"{DRIVER} -k vouched",
    ),
    ControlMutant(
        "another leader's entry at our place is taken for ours",
        "broker/coordination/controller_driver.py",
        "        if entry.term == self._host.epoch:",
        "        if True:",
        f"{DRIVER} -k another_leaders_entry",
    ),
    ControlMutant(
        "leadership that was lost and won again is taken for one",
        "broker/coordination/host.py",
        "            if epoch != self.epoch:\n                self._unload()",
        "            if epoch is None:\n                self._unload()",
        f"{DRIVER} -k won_again",
    ),
    ControlMutant(
        "while appends fail the machine is loaded again all the time",
        "broker/coordination/controller_driver.py",
        "LOAD_AGAIN_MS = 50\n",
        "LOAD_AGAIN_MS = 1\n",
        f"{DRIVER} -k now_and_then",
    ),
    ControlMutant(
        "a controller of another cluster's log goes on",
        "broker/coordination/host.py",
        "            self._is_unfit = True\n            self._unload()\n",
        "            self._is_unfit = True\n",
        f"{DRIVER} -k another_cluster",
    ),
    ControlMutant(
        "a request is answered before the broker shows what it did",
        "broker/cluster/forwarding.py",
        "        if not self._until_visible:",
        "        if True:",
        Runs(1, 1, "calm", 3, "visible after ack"),
    ),
    ControlMutant(
        "a controller takes charge before it has applied its log",
        "broker/coordination/controller_driver.py",
        "if self._load is not None and raft.applied_index >= self._load_index:",
        "if self._load is not None:",
        f"{DRIVER} -k still_loading",
    ),
    ControlMutant(
        "a change is asked for again although it may have been made",
        "broker/cluster/forwarding.py",
        "        return request.validate_only",
        "        return True",
        f"{FORWARDING} -k unknown",
    ),
    ControlMutant(
        "replaced settings are written again although they may have been",
        "broker/cluster/forwarding.py",
        "    if isinstance(request, _CHANGES):",
        "    if isinstance(request, _CHANGES[1:]):",
        f"{FORWARDING} -k unharmed",
    ),
    ControlMutant(
        "a deletion is acknowledged and not written",
        "controller/topics.py",
        "            records.append(TopicRemoved(topic_id=topic.topic_id))\n",
        "",
        Runs(1, 1, "calm", 3, "visible after ack"),
    ),
    ControlMutant(
        "a refusal comes out of the blue",
        "controller/topics.py",
        "    if name in image.topic_ids:\n",
        "    if name in image.topic_ids or name == 'clicks':\n",
        Runs(1, 1, "calm", 3, "linearizable administration"),
    ),
    ControlMutant(
        "a new controller does not restart the sessions",
        "controller/machine.py",
        "        self._sessions.restart(\n            self.image,\n            context.now_ms,\n"
        "            context.next_offset,\n            self.config.refused_timeout_ms,\n"
        "            self.config.election_timeout_ms,\n        )\n",
        "",
        Runs(1, 16, "brokers", 3, "progress after healing"),
    ),
    ControlMutant(
        "a second living process is taken for a broker",
        "controller/brokers.py",
        "        if sessions.is_alive(image, request.broker_id, now_ms, is_heard=is_heard):",
        "        if False:",
        Runs(1, 3, "brokers", 3, "one process per broker"),
    ),
    ControlMutant(
        "whoever names any process as dead is taken for a broker",
        "controller/brokers.py",
        "    return existing.incarnation_id in request.predecessors and ",
        "    return bool(request.predecessors) and ",
        Runs(1, 8, "brokers", 3, "one process per broker"),
    ),
    ControlMutant(
        "a copy of a directory proves that the process in the first is dead",
        "data_directory/incarnations.py",
        "    if version != _VERSION or identity != lock_identity:",
        "    if version != _VERSION:",
        Runs(1, 8, "brokers", 3, "one process per broker"),
    ),
    ControlMutant(
        "a change is written as two entries",
        "broker/coordination/controller_driver.py",
        "        return self._driver.propose(encode_bundle(records), _ignore) - 1\n",
        "        offset = self.next_offset()\n"
        '        half = len(records) // 2 if type(records[0][0]).__name__ == "TopicCreated" else 0\n'
        "        for part in filter(None, (records[:half], records[half:])):\n"
        "            self._driver.propose(encode_bundle(part), _ignore)\n"
        "        return offset\n",
        Runs(1, 1, "calm", 3, "no half-applied change"),
    ),
    ControlMutant(
        "blocks of producer ids overlap",
        "controller/producer_ids.py",
        "        next_producer_id=first + BLOCK_COUNT,",
        "        next_producer_id=first + BLOCK_COUNT - 1,",
        Runs(1, 1, "calm", 3, "producer ids are given once"),
    ),
    ControlMutant(
        "a fenced broker keeps what it leads",
        "controller/brokers.py",
        "        change.fenced = FENCE\n    else:",
        "        change.fenced = FENCE\n        return [change]\n    else:",
        Runs(1, 3, "brokers", 3, "the fenced lead nothing"),
    ),
    ControlMutant(
        "a change of leader does not raise the leader epoch",
        "controller/image.py",
        "        leader_epoch=partition.leader_epoch + (not same_leader),",
        "        leader_epoch=partition.leader_epoch + (record.leader >= 0),",
        Runs(1, 3, "brokers", 3, "epochs only rise"),
    ),
    ControlMutant(
        "a new controller does not say who it is",
        "controller/machine.py",
        "self._at_level([elected, *common, *settled])",
        "self._at_level([*common, *settled])",
        Runs(1, 1, "churn", 3, "one controller per term"),
    ),
    ControlMutant(
        "a broker that holds no replica is let into the ISR",
        "controller/partitions.py",
        " or not set(isr) <= set(partition.replicas) or partition.leader not in isr:",
        " or partition.leader not in isr:",
        Runs(1, 2, "calm", 3, "ISR within replicas"),
    ),
    ControlMutant(
        "a watcher misses the entry it asked for",
        "broker/cluster/metadata.py",
        "                if offset >= from_offset:",
        "                if offset > from_offset:",
        Runs(1, 2, "mixed", 3, "image is a prefix"),
    ),
    ControlMutant(
        "a replica that came from a snapshot pretends to have what was before",
        "broker/cluster/metadata.py",
        "        self._recent_from = image.offset + 1\n",
        "",
        f"{B}/cluster/test_metadata.py -k pretended",
    ),
    ControlMutant(
        "an older snapshot takes a replica back",
        "broker/cluster/metadata.py",
        "        if image.offset <= self.image.offset:\n            return\n        self.image = image\n",
        "        self.image = image\n",
        f"{B}/cluster/test_metadata.py -k older_snapshot",
    ),
    ControlMutant(
        "a broker whose session expired goes on as if it ran",
        "broker/cluster/lifecycle.py",
        "            if now_ms - self._answered_ms >= self._times.session_timeout_ms:\n",
        "            if now_ms - self._answered_ms > 2 * self._times.session_timeout_ms:\n",
        f"{LIFE} -k session_expired",
    ),
    ControlMutant(
        "the answer to a heartbeat of the past counts",
        "broker/cluster/lifecycle.py",
        "            if not self._stopped and number == self._sequence:\n",
        "            if True:\n",
        f"{LIFE} -k stopped_lifecycle",
    ),
    ControlMutant(
        "a coordinator begins while the lease of the one before lasts",
        "broker/coordination/lease.py",
        "        if leader_epoch == FIRST_EPOCH or ",
        "        if True or ",
        Runs(88, 1, "brokers", 3, "leases end before their successors begin"),
    ),
    ControlMutant(
        "a follower whose log ends in a conflict at the leader's snapshot is asked for ever",
        "raft/log.py",
        "        if position == self.base_index and self.base_term > term:",
        "        if False:",
        "tests/unit/raft/test_probe_behind_snapshot.py",
    ),
]
