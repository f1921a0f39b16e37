"""Bugs of groups that take one exact story; the tests named with each catch it.

Those that take chance are in tests/simulation/groups_mutants.py.
"""

from tests.mutants.harness import Mutant

G = "tests/unit/groups"
B = "tests/unit/broker"
C = "tests/unit/client"

MUTANTS = [
    Mutant(
        "positions are committed where nobody owns anything yet",
        "groups/offset_manager.py",
        "    if group.state is GroupState.COMPLETING:\n",
        "    if False:\n",
        f"{G}/test_offsets.py {G}/classic/test_transitions.py -k commit",
    ),
    Mutant(
        "positions expire while the group has members",
        "groups/offset_manager.py",
        "        if group is not None and (group.state is not GroupState.EMPTY or group.pending):\n"
        "            return True\n",
        "",
        f"{G}/test_offsets.py -k expire",
    ),
    Mutant(
        "a group that was deleted comes back with the next coordinator",
        "groups/directory.py",
        "            turn.write(GroupMetadataRecord(GroupMetadataKey(group=group_id), None))\n",
        "            pass\n",
        f"{G}/test_transcripts.py -k last_one_leaves",
    ),
    Mutant(
        "a static member that comes back is not written down",
        "groups/classic/joining.py",
        "        member.join_waiter = None\n        turn.write(make_group_metadata_record(group))\n",
        "        member.join_waiter = None\n",
        f"{G}/test_transcripts.py -k static",
    ),
    Mutant(
        "a rebalance waits for those who will never join",
        "groups/classic/rebalance.py",
        "    turn.timers.set(_barrier(group), turn.now_ms + wait_ms)\n",
        "",
        f"{G}/classic/test_transitions.py -k happens_or_cannot",
    ),
    Mutant(
        "members that never ask for their part are never missed",
        "groups/classic/rebalance.py",
        "    turn.timers.set(_sync_timer(group), turn.now_ms + group.rebalance_timeout_ms)\n",
        "",
        f"{G}/classic/test_transitions.py -k happens_or_cannot",
    ),
    Mutant(
        "the log is read back with aborted commits",
        "broker/coordination/coordinator_log.py",
        "            end = TransactionEnd(producer, marker.is_commit, marker.coordinator_epoch)\n",
        "            end = TransactionEnd(producer, True, marker.coordinator_epoch)\n",
        f"{B}/coordination/test_coordinators.py -k transaction",
    ),
    Mutant(
        "offsets of a transaction that is open are dropped at the load",
        "broker/coordination/coordinator_log.py",
        "        if records:\n            load.replay(",
        "        if records and not header.is_transactional:\n            load.replay(",
        f"{B}/coordination/test_coordinators.py -k open_at_the_load",
    ),
    Mutant(
        "a machine answers before its load has ended",
        "broker/coordination/host.py",
        "        self._load = Load(self)\n        self._log.load(self._load)\n",
        "        self._load = Load(self)\n        load = self._load\n        self._log.load(load)\n"
        "        if self._load is load:\n"
        "            self.runtime.loaded(self._clock.monotonic_ms())\n            self._load = None\n",
        f"{B}/coordination/test_host.py -k nothing_is_answered",
    ),
    Mutant(
        "the load of an older epoch goes on in a newer one",
        "broker/coordination/host.py",
        "        return self._load is load\n",
        "        return self._load is not None\n",
        f"{B}/coordination/test_host.py -k older_epoch",
    ),
    Mutant(
        "what became of an effect of an earlier epoch counts",
        "broker/coordination/host.py",
        "        if epoch != self.epoch:\n            return\n",
        "",
        f"{B}/coordination/test_host.py -k event_of_an_earlier",
    ),
    Mutant(
        "an older offset comes back when its transaction is committed late",
        "statemachine/runtime.py",
        "                self.pending.supersede(records)\n",
        "                pass\n",
        f"{B}/coordination/test_coordinators.py tests/unit/statemachine/test_pending.py -k outlives",
    ),
    Mutant(
        "a late marker ends the next transaction",
        "statemachine/pending.py",
        " or transaction.producer_epoch > producer_epoch:\n",
        ":\n",
        "tests/unit/statemachine/test_pending.py",
    ),
    Mutant(
        "of the log only the first part is read back",
        "broker/coordination/coordinator_log.py",
        "            self._read_slice(load, next_offset, read_back)\n",
        "            read_back()\n",
        f"{B}/coordination/test_coordinators.py -k told_that_there_is_no_position",
    ),
    Mutant(
        "who leaves overtakes its own last commit",
        "broker/coordination/coordinators.py",
        "        elif self._gathering:\n            self._begin_gathered()\n",
        "",
        f"{B}/coordination/test_commit_gathering.py -k overtakes",
    ),
    Mutant(
        "who waits for other commits never hears that another broker leads",
        "broker/coordination/coordinators.py",
        "        self.host.close()\n        self._begin_gathered()\n",
        "        self.host.close()\n",
        f"{B}/coordination/test_commit_gathering.py -k another_broker_leads",
    ),
    Mutant(
        "commits are put together until they do not fit an entry",
        "broker/coordination/commit_gathering.py",
        "        if self._size + size > config.entry_bytes_max or ",
        "        if ",
        f"{B}/coordination/test_commit_gathering.py -k fits_one_entry",
    ),
    Mutant(
        "of commits that came together all are refused if one is",
        "groups/offset_manager.py",
        "                replies.append(refusal)\n",
        "                raise\n",
        f"{G}/test_offsets.py {B}/coordination/test_commit_gathering.py -k together",
    ),
    Mutant(
        "a heartbeat waits until its pattern was matched with every name",
        "groups/consumer/planning.py",
        "    matches_left = TURN_MATCHES_MAX\n",
        "    matches_left = 1 << 30\n",
        f"{G}/consumer/test_pattern_stories.py -k literal_names_come_first",
    ),
    Mutant(
        "patterns are resolved in one turn",
        "groups/consumer/groups.py",
        "self._resolution.advance(TURN_MATCHES_MAX):\n",
        "self._resolution.advance(1 << 30):\n",
        f"{G}/consumer/test_pattern_stories.py -k literal_names_come_first",
    ),
    Mutant(
        "what was resolved beside the heartbeats is not written",
        "groups/consumer/groups.py",
        "        if size_bounds(draft.records) <= turn.config.entry_bytes_max:\n",
        "        if size_bounds(draft.records) > turn.config.entry_bytes_max:\n",
        f"{G}/consumer/test_pattern_stories.py -k patterns_of_several_groups",
    ),
    Mutant(
        "a topic that was removed still takes commits",
        "broker/cluster/topics_seen.py",
        "        self._by_name.clear()\n",
        "",
        f"{B}/cluster/test_topics_seen.py",
    ),
    Mutant(
        "a position is written with the name of the topic before it",
        "groups/records.py",
        "        if topic is not shared_topic or group_id is not shared_group:\n",
        "        if group_id is not shared_group:\n",
        f"{G}/test_records.py -k bytes_of_their_messages",
    ),
    Mutant(
        "a cooperative move is given out before it was given up",
        "client/groups/sticky.py",
        "[each for each in partitions if owner.get(each, set()) <= {member}]",
        "list(partitions)",
        f"{C}/groups/test_assignors.py -k cooperative_move",
    ),
    Mutant(
        "a member that was forgotten keeps what it had without a word",
        "client/groups/membership.py",
        "        self._lost += self.owned\n        self.owned = ()\n",
        "        self.owned = ()\n",
        f"{C}/groups/test_membership.py -k lost",
    ),
    Mutant(
        "lag counts what compaction has removed",
        "client/admin/group_lag.py",
        "                count += header.record_count\n",
        "                count += header.next_offset - header.base_offset\n",
        f"{C}/admin/test_group_lag.py",
    ),
    Mutant(
        "lag counts the markers of transactions",
        "client/admin/group_lag.py",
        "filtering.passes(data, at, header):\n            if header.base_offset >= offset:\n",
        "(filtering.passes(data, at, header) or header.is_control):\n"
        "            if header.base_offset >= offset:\n",
        f"{C}/admin/test_group_lag.py",
    ),
    Mutant(
        "names of groups fill a scrape without end",
        "broker/coordination/group_metrics.py",
        "            name = sample.group_id if len(members) < self._groups_max else OTHER\n",
        "            name = sample.group_id\n",
        f"{B}/coordination/test_group_metrics.py",
    ),
    Mutant(
        "a group's own session counts for nothing",
        "groups/consumer/groups.py",
        "            own = make_group_turn(topics.group_settings(group.group_id), turn)\n",
        "            own = turn\n",
        f"{G}/consumer/test_settings.py -k new_coordinator",
    ),
    Mutant(
        "a group may set itself anything",
        "broker/handlers/_configs.py",
        "    check_group(settings, config)\n",
        "",
        f"{B}/handlers/test_group_configs.py",
    ),
]
