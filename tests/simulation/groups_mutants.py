"""Bugs worth seeding into groups and their coordinators, each caught by simulated runs whose seeds are kept.

Those that take one exact story rather than chance are in tests/mutants/groups_mutants.py.
"""

from typing import NamedTuple


class Runs(NamedTuple):
    """Runs of which one shows the bug, and what it breaks."""

    first_seed: int
    seeds: int
    flavour: str
    breaks: str


class GroupsMutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    caught_by: Runs


MUTANTS = [
    GroupsMutant(
        "there is no position while the log is being read",
        "broker/coordination/coordinators.py",
        "        else:\n            self.host.submit(request, deadline_ms, done)\n",
        "        elif isinstance(request, FetchOffsetsRequest) and not self.is_active:\n"
        "            from distributedlog.groups.requests import FetchOffsetsReply\n\n"
        "            done(Outcome(FetchOffsetsReply(())))\n"
        "        else:\n            self.host.submit(request, deadline_ms, done)\n",
        Runs(1, 1, "coordinators", "no read from the past"),
    ),
    GroupsMutant(
        "a commit is acknowledged before it is committed",
        "statemachine/runtime.py",
        "        self._delayed.append(_DelayedReply(self.replayed_offset, reply))",
        '        is_early = type(reply.response).__name__ == "CommitReply"\n'
        "        self._delayed.append(_DelayedReply(NO_OFFSET if is_early else self.replayed_offset, reply))",
        Runs(1, 1, "coordinators", "no read from the past"),
    ),
    GroupsMutant(
        "positions are committed from an old generation",
        "groups/classic/group.py",
        "        if generation != self.generation:\n",
        "        if False:\n",
        Runs(38, 1, "members", "offset regression"),
    ),
    GroupsMutant(
        "who is no member any more may commit",
        "groups/offset_manager.py",
        "    member = group.check_member(request.member_id, request.instance_id, request.generation)\n"
        "    if group.state is GroupState.COMPLETING:",
        "    if request.member_id not in group.members:\n        return\n"
        "    member = group.check_member(request.member_id, request.instance_id, request.generation)\n"
        "    if group.state is GroupState.COMPLETING:",
        Runs(1, 1, "members", "offset regression"),
    ),
    GroupsMutant(
        "a coordinator that was replaced while it stood still tells old positions",
        "broker/coordination/lease.py",
        "        return self._clock.monotonic_ms() < self.end_ms\n",
        "        return self.end_ms != NO_LEASE.end_ms\n",
        Runs(23, 1, "coordinators", "no read from the past"),
    ),
    GroupsMutant(
        "a lease is extended while the image stands still",
        "broker/coordination/lease.py",
        " if self._applied_offset >= grant.lease_offset else NO_LEASE.end_ms\n",
        "\n",
        Runs(9, 1, "coordinators", "no read from the past"),
    ),
    GroupsMutant(
        "a new coordinator answers while the lease of the one before lasts",
        "broker/coordination/lease.py",
        "        if leader_epoch == FIRST_EPOCH or ",
        "        if True or ",
        Runs(27, 1, "coordinators", "no read from the past"),
    ),
    GroupsMutant(
        "assignments are told before they are committed",
        "statemachine/runtime.py",
        "            self._delayed_effects.append(_DelayedEffects(self.replayed_offset, result.effects))",
        "            self._delayed_effects.append(_DelayedEffects(NO_OFFSET, result.effects))",
        Runs(2, 1, "coordinators", "assignments last"),
    ),
    GroupsMutant(
        "what one broker has counts as committed",
        "broker/coordination/coordinator_log.py",
        "        return self._partition.high_watermark - 1 if",
        "        return self._partition.log_end_offset - 1 if",
        Runs(2, 1, "coordinators", "assignments last"),
    ),
    GroupsMutant(
        "a silent member is never missed",
        "groups/classic/rebalance.py",
        "(member.join_waiter is not None and not member.is_new)\n    if waits:\n",
        "(member.join_waiter is not None and not member.is_new)\n    if True:\n",
        Runs(5, 1, "members", "stuck rebalance"),
    ),
    GroupsMutant(
        "a duplicate instance is not fenced",
        "groups/classic/group.py",
        "            if self.static[instance_id] != member_id:\n",
        "            if False:\n",
        Runs(1, 1, "members", "stuck rebalance"),
    ),
    GroupsMutant(
        "every member of a generation is given the same",
        "groups/classic/syncing.py",
        '        member.assignment = given.get(member.member_id, b"")\n',
        '        member.assignment = max(given.values(), default=b"")\n',
        Runs(2, 1, "calm", "two owners"),
    ),
    GroupsMutant(
        "a new coordinator counts generations from the start",
        "groups/classic/group.py",
        "    group.generation = value.generation\n",
        "    group.generation = -value.generation\n",
        Runs(2, 1, "coordinators", "generations rise"),
    ),
    # --- the new consumer protocol -------------------------------------------------------------
    GroupsMutant(
        "a partition is assigned before its owner has given it up",
        "groups/consumer/reconciliation.py",
        "    free = frozenset(tp for tp in to_come if is_free(tp))\n",
        "    free = to_come\n",
        Runs(4, 1, "members", "two owners at once"),
    ),
    GroupsMutant(
        "what a member has to give up is free before it says that it did",
        "groups/consumer/member.py",
        "        return self.assigned | self.revoking if self.revoking else self.assigned\n",
        "        return self.assigned\n",
        Runs(4, 1, "members", "two owners at once"),
    ),
    GroupsMutant(
        "whoever subscribes to something else stays in the old epoch",
        "groups/consumer/heartbeat.py",
        "    is_changed = is_new or updated.topics != before.topics or updated.pattern != before.pattern\n",
        "    is_changed = is_new\n",
        Runs(8, 1, "members", "epochs rise"),
    ),
    GroupsMutant(
        "positions are committed from an epoch that has passed",
        "groups/consumer/offset_checks.py",
        "    if epoch == member.epoch:\n",
        "    if epoch <= member.epoch:\n",
        Runs(4, 1, "members", "offset regression"),
    ),
    GroupsMutant(
        "a new coordinator forgets the target",
        "groups/consumer/groups.py",
        "            if not group.members:\n                self._empty_since_ms[group.group_id]",
        "            group.targets.clear()\n"
        "            if not group.members:\n                self._empty_since_ms[group.group_id]",
        Runs(4, 1, "coordinators", "replay equals state"),
    ),
    GroupsMutant(
        "a member that changed its subscription has no place in a compacted log",
        "groups/consumer/group.py",
        "            if value is None:\n                return\n            known = Member(member_id)",
        "            return\n            known = Member(member_id)",
        Runs(4, 1, "members", "replay equals state"),
    ),
    GroupsMutant(
        "a member is told its part before it is committed",
        "statemachine/runtime.py",
        "        self._delayed.append(_DelayedReply(self.replayed_offset, reply))",
        '        is_early = type(reply.response).__name__ == "ConsumerHeartbeatReply"\n'
        "        self._delayed.append(_DelayedReply(NO_OFFSET if is_early else self.replayed_offset, reply))",
        Runs(4, 1, "coordinators", "parts last"),
    ),
    GroupsMutant(
        "partitions go to members that do not subscribe to them",
        "groups/consumer/assignors.py",
        "        those = [reader for reader in ordered if topic.name in reader.topics]\n",
        "        those = ordered\n",
        Runs(4, 1, "members", "only what is subscribed to"),
    ),
    GroupsMutant(
        "a new coordinator never misses members that are gone",
        "groups/consumer/groups.py",
        "                sessions.keep_alive(group.group_id, member, own)\n",
        "",
        Runs(4, 1, "coordinators", "stuck reconciliation"),
    ),
    GroupsMutant(
        "a member that is out keeps its place in the group",
        "groups/consumer/records.py",
        "        ConsumerRecord(_member_key(group_id, member_id), None),\n",
        "",
        Runs(4, 1, "members", "stuck reconciliation"),
    ),
    GroupsMutant(
        "new partitions of a topic are nobody's",
        "groups/consumer/groups.py",
        "self._seen.get(group.group_id) is lookup.topics.mark:\n",
        "True:\n",
        Runs(88, 1, "members", "stuck reconciliation"),
    ),
]
