"""Bugs worth seeding into Raft, and what catches each.

Most are caught by a simulated run, whose seed is kept.  A bug that takes one exact story rather than chance
is caught by the test that tells it.
"""

from typing import NamedTuple


class Seed(NamedTuple):
    """A run that shows the bug, and what it breaks."""

    seed: int
    flavour: str
    nodes: int
    breaks: str


class RaftMutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str
    caught_by: Seed | str
    """A simulated run, or the tests that tell the one exact story."""


STORY = "tests/unit/raft/test_transcripts.py::test_the_story_goes_as_it_was_told"
ADMISSION = "tests/unit/raft/test_admission.py"

MUTANTS = [
    RaftMutant(
        "a vote is not synced before it is given",
        "raft/election.py",
        "core.promise(VoteReply(core.node_id, request.sender, core.term, False, granted))",
        "core.send(VoteReply(core.node_id, request.sender, core.term, False, granted))",
        Seed(1, "churn", 3, "durable vote"),
    ),
    RaftMutant(
        "a term is used again after a restart",
        "raft/core.py",
        "        self.vote = vote\n        self.hard_state_dirty = True\n",
        "        self.vote = vote\n",
        Seed(1, "duel", 3, "durable vote"),
    ),
    RaftMutant(
        "a restart forgets the vote",
        "raft/core.py",
        "self.vote = hard_state.vote",
        "self.vote = None if hard_state.vote != node_id else hard_state.vote",
        Seed(3, "duel", 5, "one vote"),
    ),
    RaftMutant(
        "an old term's entry is committed by counting",
        "raft/replication.py",
        "if index <= core.commit_index or core.log.term_at(index) != core.term:",
        "if index <= core.commit_index:",
        Seed(3, "figure eight", 5, "leader completeness"),
    ),
    RaftMutant(
        "entries are applied before they are committed",
        "raft/core.py",
        "last = min(\n            self.commit_index, self.log.stable_index, ",
        "last = min(\n            self.log.stable_index, ",
        Seed(3, "churn", 5, "state machine safety"),
    ),
    RaftMutant(
        "a snapshot loses the tail of the log",
        "raft/snapshots.py",
        "core.log.trim_to(index - core.config.entries_kept_behind_snapshot)",
        "core.log.trim_to(core.log.stable_index)",
        Seed(8, "duel", 5, "state machine safety"),
    ),
    RaftMutant(
        "two changes of membership at once",
        "raft/node.py",
        "if core.memberships.index > core.commit_index:",
        "if False:",
        Seed(91, "mixed", 3, "one change at a time"),
    ),
    RaftMutant(
        "a read is answered without asking a majority",
        "raft/reads.py",
        "if core.membership.majority > 1 or not core.is_voter:",
        "if False:",
        Seed(40, "churn", 3, "linearizability"),
    ),
    RaftMutant(
        "a new leader answers reads before it knows what is committed",
        "raft/reads.py",
        "if not core.reads_waiting or core.commit_index < core.term_start_index:",
        "if not core.reads_waiting:",
        Seed(102, "churn", 3, "linearizability"),
    ),
    RaftMutant(
        "a conflicting entry is not truncated",
        "raft/replication.py",
        "        core.truncate_from(entries[known].index)\n",
        "        return\n",
        Seed(3, "churn", 5, "durable commit"),
    ),
    RaftMutant(
        "nobody asks before an election",
        "raft/election.py",
        "    core.votes = {core.node_id: True}\n    if _has_won(core):\n",
        "    if True:\n",
        Seed(17, "lonely", 5, "stability"),
    ),
    RaftMutant(
        "a candidate with a shorter log is elected",
        "raft/election.py",
        "up_to_date = (request.last_term, request.last_index) >= (log.last_term, log.last_index)",
        "up_to_date = True",
        Seed(16, "churn", 5, "leader completeness"),
    ),
    RaftMutant(
        "a leader counts what its own disk does not have yet",
        "raft/replication.py",
        "core.majority_of(core.log.stable_index,",
        "core.majority_of(core.log.last_index,",
        Seed(1, "members", 3, "durable commit"),
    ),
    RaftMutant(
        "a follower answers for entries before they are synced",
        "raft/replication.py",
        "    core.promise(reply)\n",
        "    core.send(reply)\n",
        Seed(1, "members", 3, "durable commit"),
    ),
    RaftMutant(
        "a voter that lost its disk votes",
        "raft/election.py",
        "is_meant = request.voter_incarnation == core.incarnation",
        "is_meant = True",
        Seed(91, "mixed", 3, "leader completeness"),
    ),
    RaftMutant(
        "a voter that lost its disk counts",
        "raft/core.py",
        "return follower is not None and follower.incarnation in (None, incarnation)",
        "return follower is not None",
        Seed(45, "mixed", 3, "durable commit"),
    ),
    RaftMutant(
        "a heartbeat commits what the follower may not have",
        "raft/replication.py",
        "        commit_index = min(core.commit_index, follower.match_index)\n        core.send",
        "        commit_index = core.commit_index\n        core.send",
        Seed(3, "churn", 5, "state machine safety"),
    ),
    RaftMutant(
        "a removed leader counts itself",
        "raft/core.py",
        "        values.sort(reverse=True)\n",
        "        if self.node_id not in self.memberships.current.voters:\n            values.append(own)\n"
        "        values.sort(reverse=True)\n",
        Seed(1, "members", 3, "durable commit"),
    ),
    RaftMutant(
        "the old log is dropped before the snapshot is durable",
        "broker/cluster/raft_driver.py",
        "        storage.save_snapshot(persist.snapshot)\n        if persist.snapshot_installed:\n"
        "            storage.reset_log(persist.snapshot.index + 1)\n",
        "        if persist.snapshot_installed:\n            storage.reset_log(persist.snapshot.index + 1)\n"
        "        storage.save_snapshot(persist.snapshot)\n",
        "tests/simulation/test_raft_storage.py",
    ),
    RaftMutant(
        "entries are written but not synced",
        "broker/cluster/raft_driver.py",
        "        storage.append(persist.entries)\n        storage.sync()\n",
        "        storage.append(persist.entries)\n",
        Seed(1, "members", 3, "durable commit"),
    ),
    RaftMutant(
        "a lost message is never sent again",
        "raft/replication.py",
        "    elif follower.match_index < core.log.last_index and stalled:",
        "    elif False:",
        Seed(1, "members", 3, "progress"),
    ),
    RaftMutant(
        "a leader that hears nobody goes on leading",
        "raft/election.py",
        "return core.now_ms - heard_ms >= core.config.election_timeout_ms",
        "return False",
        f"{STORY}[a_partitioned_leader_steps_down]",
    ),
    RaftMutant(
        "a new leader changes the membership before it knows what is committed",
        "raft/node.py",
        "        if core.commit_index < core.term_start_index:\n            raise MembershipError",
        "        if False:\n            raise MembershipError",
        f"{STORY}[one_change_at_a_time]",
    ),
    RaftMutant(
        "voters disturb a leader they hear",
        "raft/election.py",
        "return core.hears_leader and not request.transfer",
        "return False",
        Seed(2, "lonely", 3, "stability"),
    ),
    RaftMutant(
        "a term that rotted on the disk is believed",
        "data_directory/raft_storage.py",
        "(entry.index, entry.term) != (offset + 1, epoch)",
        "entry.index != offset + 1",
        "tests/simulation/test_raft_storage.py -k rotted",
    ),
    RaftMutant(
        "a torn write is taken for a loss",
        "data_directory/raft_storage.py",
        "if _synced_index_at(managed, found, size) > offset:",
        "if True:",
        "tests/simulation/test_raft_storage.py -k hole",
    ),
    RaftMutant(
        "a truncation looks like a loss after a crash",
        "data_directory/raft_storage.py",
        "        self._lower_recovery_point(index - 1)\n",
        "",
        "tests/simulation/test_raft_storage.py",
    ),
    RaftMutant(
        "a minority elects",
        "raft/membership.py",
        "return len(self.voters) // 2 + 1",
        "return len(self.voters) // 2",
        Seed(2, "duel", 5, "election safety"),
    ),
    RaftMutant(
        "a leader takes back what a follower refuses",
        "raft/replication.py",
        "if follower.rejected(reply.match_index, agreeing + 1):",
        "if core.log.truncate_from(max(agreeing, core.commit_index) + 1) or follower.rejected(\n"
        "            reply.match_index, agreeing + 1\n        ):",
        Seed(1, "churn", 5, "leader append-only"),
    ),
    RaftMutant(
        "a follower does not compare terms",
        "raft/replication.py",
        "if not core.log.matches(request.prev_index, request.prev_term):",
        "if core.log.term_at(request.prev_index) is None:",
        Seed(1, "churn", 5, "log matching"),
    ),
    RaftMutant(
        "a stranger is heard",
        "raft/admission.py",
        "return memberships.names(node_id) or is_known_voter(node_id)",
        "return True",
        ADMISSION,
    ),
    RaftMutant(
        "a term that no batch can carry is begun",
        "raft/admission.py",
        "    if message.term > TERM_MAX:\n        return False\n",
        "",
        ADMISSION,
    ),
    RaftMutant(
        "an entry is accepted before it is read",
        "raft/node.py",
        "if isinstance(message, AppendRequest) and not are_readable(message.entries, self._contents):",
        "if isinstance(message, AppendRequest) and message.term < 0:",
        ADMISSION,
    ),
]
