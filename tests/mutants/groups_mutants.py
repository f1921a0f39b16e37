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
        "groups/positions.py",
        "    if group.state is GroupState.COMPLETING:\n",
        "    if False:\n",
        f"{G}/test_offsets.py {G}/test_transitions.py -k commit",
    ),
    Mutant(
        "positions expire while the group has members",
        "groups/positions.py",
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
        "        member.join_waiter = None\n        turn.write(record_of(group))\n",
        "        member.join_waiter = None\n",
        f"{G}/test_transcripts.py -k static",
    ),
    Mutant(
        "a rebalance waits for those who will never join",
        "groups/classic/rebalance.py",
        "    turn.timers.set(_barrier(group), turn.now_ms + wait_ms)\n",
        "",
        f"{G}/test_transitions.py -k happens_or_cannot",
    ),
    Mutant(
        "members that never ask for their part are never missed",
        "groups/classic/rebalance.py",
        "    turn.timers.set(_sync_timer(group), turn.now_ms + group.rebalance_timeout_ms)\n",
        "",
        f"{G}/test_transitions.py -k happens_or_cannot",
    ),
    Mutant(
        "the log is read back with aborted commits",
        "broker/coordinator_log.py",
        "                if marker.is_commit and ended:\n",
        "                if ended:\n",
        f"{B}/test_coordinators.py -k transaction",
    ),
    Mutant(
        "of the log only the first part is read back",
        "broker/coordinator_log.py",
        "            self._done(error)\n            return\n        self.start()\n",
        "            self._done(error)\n            return\n        self._done(None)\n",
        f"{B}/test_coordinators.py -k told_that_there_is_no_position",
    ),
    Mutant(
        "who leaves overtakes its own last commit",
        "broker/coordinators.py",
        "        elif self._gathering:\n            self._begin_gathered()\n",
        "",
        f"{B}/test_commit_gathering.py -k overtakes",
    ),
    Mutant(
        "who waits for other commits never hears that another broker leads",
        "broker/coordinators.py",
        'is led elsewhere"))\n        self._begin_gathered()\n',
        'is led elsewhere"))\n',
        f"{B}/test_commit_gathering.py -k another_broker_leads",
    ),
    Mutant(
        "commits are put together until they do not fit an entry",
        "broker/commit_gathering.py",
        "        if self._size + size > config.entry_bytes_max or ",
        "        if ",
        f"{B}/test_commit_gathering.py -k fits_one_entry",
    ),
    Mutant(
        "of commits that came together all are refused if one is",
        "groups/positions.py",
        "                replies.append(refusal)\n",
        "                raise\n",
        f"{G}/test_offsets.py {B}/test_commit_gathering.py -k together",
    ),
    Mutant(
        "a topic that was removed still takes commits",
        "broker/topics_seen.py",
        "        self._by_name.clear()\n",
        "",
        f"{B}/test_topics_seen.py",
    ),
    Mutant(
        "a position is written with the name of the topic before it",
        "groups/records.py",
        "        if topic is not shared_topic or group_id is not shared_group:\n",
        "        if group_id is not shared_group:\n",
        f"{G}/test_records.py -k bytes_of_their_messages",
    ),
    Mutant(
        "lag counts what compaction has removed",
        "client/group_lag.py",
        "                count += header.record_count\n",
        "                count += header.next_offset - header.base_offset\n",
        f"{C}/test_group_lag.py",
    ),
    Mutant(
        "lag counts the markers of transactions",
        "client/group_lag.py",
        "filtering.passes(data, at, header):\n",
        "(filtering.passes(data, at, header) or header.is_control):\n",
        f"{C}/test_group_lag.py",
    ),
    Mutant(
        "names of groups fill a scrape without end",
        "broker/group_metrics.py",
        "            name = sample.group_id if len(members) < self._groups_max else OTHER\n",
        "            name = sample.group_id\n",
        f"{B}/test_group_metrics.py",
    ),
    Mutant(
        "a group's own session counts for nothing",
        "groups/consumer/groups.py",
        "            own = turn_under(topics.group_settings(group.group_id), turn)\n",
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
