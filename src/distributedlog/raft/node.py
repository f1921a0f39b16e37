"""One Raft node: takes messages, requests and the time; gives out what to persist, send and apply.

    driver:  node.step(message, now_ms) / node.tick(now_ms) / node.propose(...) / ...
             ready = node.ready()
             send ready.messages                     they may leave now
             restore ready.restore, apply ready.committed, in this order
             if ready.persist:  write it, sync it    elsewhere, perhaps slowly; at most one at a time
                                node.advance(ready.persist), then ready() again

`ready()` can be called at any time; while a persist is under way it gives out the rest.  A `Persist` is
done in this order: save the hard state; save the snapshot, and if it was installed drop the whole log;
truncate; append; sync everything; only then `advance`.  Messages that speak of what is persisted come
out of a later `ready()`, after `advance`, so a driver cannot send them too early.

What arrives is first admitted or refused (`admission`): only members are heard, only with numbers that can
be, only with contents that the state machine can read.  A refused message changes nothing; `step` says why.

Between calls nothing happens: `next_deadline_ms()` says when `tick` is next needed, None for never.

A crash loses this object.  `Recovered` holds what the storage kept; from it a node starts as a follower
in its old term with its old vote, so it never votes twice in a term.  If the storage lost what had been
synced, the recovered hard state must carry a new incarnation (see `membership`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from distributedlog.model.errors import (
    ConsensusError,
    InvalidRecordError,
    MembershipError,
    NotLeaderError,
    OverloadedError,
    RecordTooLargeError,
)
from distributedlog.raft import codec, election, reads, replication, snapshots
from distributedlog.raft.admission import (
    INDEX_MAX,
    AnyContents,
    Contents,
    IsKnownVoter,
    Refusal,
    are_readable,
    is_in_range,
    is_member,
    is_readable_snapshot,
    no_known_voter,
)
from distributedlog.raft.config import RaftConfig
from distributedlog.raft.core import Core, Draw
from distributedlog.raft.log import RaftLog
from distributedlog.raft.membership import Change, Membership, MembershipHistory, Promote, apply_change
from distributedlog.raft.messages import (
    AppendReply,
    AppendRequest,
    Entry,
    EntryKind,
    HardState,
    Heartbeat,
    HeartbeatReply,
    InstallReply,
    InstallRequest,
    Message,
    Snapshot,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from distributedlog.raft.roles import Role, RoleEvent


class Recovered(NamedTuple):
    """What the storage kept.  `entries` follow each other; they may begin before the snapshot's end."""

    hard_state: HardState = HardState()
    snapshot: Snapshot | None = None
    entries: Sequence[Entry] = ()


class Loaded(NamedTuple):
    """What a storage returns when it is opened."""

    recovered: Recovered
    lost: bool
    """Whether something that had been synced is not there any more."""


class Persist(NamedTuple):
    """What must be durable next.  None: nothing of that kind."""

    hard_state: HardState | None
    snapshot: Snapshot | None
    snapshot_installed: bool
    """The snapshot came from a leader: the stored log is dropped whole."""
    truncate_from: int | None
    entries: tuple[Entry, ...]
    log_start_index: int
    """Entries before this one are needed no more."""


class ReadState(NamedTuple):
    """The read may be answered once the entry `read_index` is applied."""

    request_id: int
    read_index: int


class Ready(NamedTuple):
    messages: Sequence[Message]
    persist: Persist | None
    restore: Snapshot | None
    """The state machine's state is replaced by this, before `committed` is applied."""
    committed: Sequence[Entry]
    reads: Sequence[ReadState]
    reads_lost: Sequence[int]


class Status(NamedTuple):
    node_id: int
    role: Role
    term: int
    leader_id: int | None
    commit_index: int
    applied_index: int
    last_index: int
    stable_index: int
    membership: Membership


_LEADERS_MESSAGES = (AppendRequest, Heartbeat, InstallRequest, TimeoutNow)


class RaftNode:
    def __init__(
        self,
        node_id: int,
        config: RaftConfig,
        draw: Draw,
        bootstrap: Membership,
        recovered: Recovered,
        now_ms: int,
        *,
        is_known_voter: IsKnownVoter = no_known_voter,
        contents: Contents | None = None,
    ) -> None:
        """`bootstrap` is the membership of the empty log, the same on every node.  Known voters are heard
        beside the members; `contents` says what the state machine can read, None: everything."""
        log, memberships = _rebuild(recovered, bootstrap)
        self._is_known_voter = is_known_voter
        self._contents: Contents = AnyContents() if contents is None else contents
        self._core = Core(
            node_id, config, draw, recovered.hard_state, log, memberships, recovered.snapshot, now_ms
        )
        self._restore: Snapshot | None = None
        if self._core.is_voter and len(self._core.membership.voters) == 1:
            self._core.election_deadline_ms = now_ms  # the only voter need not wait for another to be heard

    # --- what goes in --------------------------------------------------------------------------

    def step(self, message: Message, now_ms: int) -> Refusal | None:
        """A message arrived; why it was refused, None: it was not."""
        core = self._core
        if message.to != core.node_id:
            return None
        refusal = self._refusal_of(message)
        if refusal is None:
            core.now_ms = now_ms
            self._dispatch(message)
        return refusal

    def tick(self, now_ms: int) -> None:
        """Handles the deadlines that have passed."""
        core = self._core
        core.now_ms = now_ms
        if core.role is Role.LEADER:
            self._tick_leader()
        elif core.is_voter and now_ms >= core.election_deadline_ms:
            election.on_election_timeout(core)

    def next_deadline_ms(self) -> int | None:
        """Returns when `tick` is next needed if nothing else happens."""
        core = self._core
        if core.role is Role.LEADER:
            return core.heartbeat_deadline_ms if core.progress else None
        return core.election_deadline_ms if core.is_voter else None

    def propose(self, payloads: Sequence[bytes]) -> Entry:
        """Appends commands; the last one's entry.  It happened once that index commits in that term."""
        core = self._core
        self._check_leads()
        if core.transfer_target is not None:
            raise NotLeaderError(
                f"node {core.node_id} is handing over to {core.transfer_target}", core.transfer_target
            )
        if not payloads:
            raise InvalidRecordError("nothing was proposed")
        for payload in payloads:
            if len(payload) > core.config.entry_bytes_max:
                raise RecordTooLargeError(
                    f"{len(payload)} bytes proposed; at most {core.config.entry_bytes_max} fit"
                )
            self._contents.check_entry(payload)
        self._check_room(len(payloads), sum(map(len, payloads)))
        entry = None
        for payload in payloads:
            entry = replication.append_entry(core, EntryKind.COMMAND, payload)
        assert entry is not None
        replication.replicate(core)
        return entry

    def read_index(self, request_id: int) -> None:
        """Asks for a linearizable read: answered in `Ready.reads` or `Ready.reads_lost`."""
        self._check_leads()
        if reads.add_read(self._core, request_id):
            replication.send_heartbeats(self._core)

    def transfer_leadership(self, target: int, now_ms: int) -> None:
        """Hands over to a voter, or goes on leading if it does not take over within an election timeout."""
        core = self._core
        core.now_ms = now_ms
        self._check_leads()
        if target == core.node_id:
            return
        if target not in core.membership.voters or not core.counts(target):
            raise MembershipError(f"node {target} is not a voter that can lead")
        core.transfer_target = target
        core.transfer_sent = False
        core.transfer_deadline_ms = now_ms + core.config.election_timeout_ms
        replication.hand_over_if_ready(core)

    def leader_refused(self, leader_id: int, now_ms: int) -> None:
        """Nobody listens where the leader did, by the word of its machine."""
        election.on_leader_refused(self._core, leader_id, now_ms)

    def change_membership(self, change: Change) -> Entry:
        """Begins a change; it is made once the entry has committed."""
        core = self._core
        self._check_leads()
        if core.commit_index < core.term_start_index:
            raise MembershipError("no entry of this term has committed yet: try again in a moment")
        if core.memberships.index > core.commit_index:
            raise MembershipError(f"the change at {core.memberships.index} has not committed: one at a time")
        membership = apply_change(core.membership, change)
        if isinstance(change, Promote):
            self._check_caught_up(change.node_id)
        if membership.voters != core.membership.voters:
            self._check_majority_well(membership)
        self._check_room(1, 0)
        entry = replication.append_membership(core, membership)
        replication.replicate(core)
        return entry

    def take_snapshot(self, index: int, data: bytes) -> None:
        """Takes `data`, the state machine's state after entry `index`, as a snapshot: the entries up to it
        may go."""
        snapshots.take_snapshot(self._core, index, data)

    # --- what comes out ------------------------------------------------------------------------

    def ready(self) -> Ready:
        core = self._core
        persist = self._begin_persist() if core.dirty and not core.persisting else None
        messages, core.outbox = core.outbox, []
        restore, self._restore = self._restore, None
        done, core.reads_done = core.reads_done, []
        lost, core.reads_lost = core.reads_lost, []
        return Ready(
            messages, persist, restore, core.take_committed(), [ReadState(*read) for read in done], lost
        )

    @property
    def has_ready(self) -> bool:
        """Whether `ready()` would give out anything."""
        core = self._core
        return bool(
            core.outbox
            or (not core.persisting and core.dirty)
            or core.applied_index < min(core.commit_index, core.log.stable_index)
            or core.reads_done
            or core.reads_lost
            or self._restore is not None
        )

    def advance(self, persist: Persist) -> None:
        """Takes note that `persist` is durable."""
        core = self._core
        if not core.persisting:
            raise ConsensusError("nothing was being persisted")
        core.persisting = False
        core.log.stored()
        if persist.snapshot_installed and persist.snapshot is core.snapshot:
            self._restore = core.snapshot
        for message in core.release_promises():
            if message.to == core.node_id:
                self._dispatch(message)
            else:
                core.send(message)
        if core.role is Role.LEADER:
            replication.advance_commit(core)

    @property
    def status(self) -> Status:
        core = self._core
        return Status(
            core.node_id,
            core.role,
            core.term,
            core.leader_id,
            core.commit_index,
            core.applied_index,
            core.log.last_index,
            core.log.stable_index,
            core.membership,
        )

    @property
    def may_vote(self) -> bool:
        """Whether this node may vote: not an observer, nor a voter that lost what it had synced."""
        return self._core.is_voter

    @property
    def core(self) -> Core:
        """The state inside, for checkers and metrics: look, do not touch."""
        return self._core

    # --- inside --------------------------------------------------------------------------------

    def _refusal_of(self, message: Message) -> Refusal | None:
        core = self._core
        is_own = message.sender == core.node_id  # no node sends to itself
        if is_own or not is_member(core.memberships, message.sender, self._is_known_voter):
            return Refusal.NOT_A_MEMBER
        if not is_in_range(message):
            return Refusal.OUT_OF_RANGE
        if isinstance(message, AppendRequest) and not are_readable(message.entries, self._contents):
            return Refusal.UNREADABLE
        if isinstance(message, InstallRequest):
            whole = snapshots.completed_by(core, message)
            if whole is not None and not is_readable_snapshot(whole, message.snapshot_index, self._contents):
                core.incoming = None
                return Refusal.UNREADABLE
        return None

    def _dispatch(self, message: Message) -> None:
        core = self._core
        if message.term != core.term and not self._agree_on_term(message):
            return
        if isinstance(message, _LEADERS_MESSAGES):
            if core.role is Role.LEADER:
                raise ConsensusError(f"nodes {core.node_id} and {message.sender} both lead term {core.term}")
            core.follow(RoleEvent.LEADER_HEARD, message.sender)
        _HANDLERS[type(message)](core, message)

    def _agree_on_term(self, message: Message) -> bool:
        """Returns whether the message is to be handled, after the later of two terms has become ours."""
        core = self._core
        if message.term < core.term:
            self._refuse_old_term(message)
            return False
        if isinstance(message, VoteRequest):
            if message.pre_vote:
                return True
            if election.would_disturb(core, message):
                return False
        elif isinstance(message, VoteReply) and message.pre_vote and message.granted:
            return True
        core.begin_term(message.term, vote=None)
        core.follow(RoleEvent.HIGHER_TERM, None)
        return True

    def _refuse_old_term(self, message: Message) -> None:
        """Tells a sender of the past which term it is, so that it does not stay there."""
        core = self._core
        if isinstance(message, VoteRequest):
            core.send(VoteReply(core.node_id, message.sender, core.term, message.pre_vote, False))
        elif isinstance(message, (AppendRequest, Heartbeat, InstallRequest)):
            core.send(HeartbeatReply(core.node_id, message.sender, core.term, core.incarnation, 0))

    def _tick_leader(self) -> None:
        core = self._core
        if election.majority_is_lost(core):
            core.follow(RoleEvent.MAJORITY_LOST, None)
            return
        if core.transfer_target is not None and core.now_ms >= core.transfer_deadline_ms:
            core.transfer_target = None
        if core.now_ms >= core.heartbeat_deadline_ms and core.progress:
            reads.start_waiting_reads(core)
            replication.send_heartbeats(core)

    def _begin_persist(self) -> Persist:
        core = self._core
        hard_state = HardState(core.term, core.vote, core.incarnation) if core.hard_state_dirty else None
        snapshot = core.snapshot if core.snapshot_unsaved else None
        installed = core.snapshot_installed
        core.hard_state_dirty = core.snapshot_unsaved = core.snapshot_installed = False
        truncate_from, entries = core.log.take_unstored()
        core.persists_begun += 1
        core.persisting = True
        return Persist(hard_state, snapshot, installed, truncate_from, entries, core.log.base_index + 1)

    def _check_leads(self) -> None:
        core = self._core
        if core.role is not Role.LEADER:
            raise NotLeaderError(
                f"node {core.node_id} is a {core.role.value} in term {core.term}", core.leader_id
            )

    def _check_room(self, entries: int, size: int) -> None:
        core = self._core
        waiting = core.log.last_index - core.commit_index
        if core.log.last_index + entries > INDEX_MAX:
            raise OverloadedError(f"the log is full: its last index is {core.log.last_index}")
        if waiting + entries > core.config.uncommitted_entries_max:
            raise OverloadedError(f"{waiting} entries wait to be committed")
        if core.uncommitted_bytes + size > core.config.uncommitted_bytes_max:
            raise OverloadedError(f"{core.uncommitted_bytes} bytes wait to be committed")

    def _check_majority_well(self, after: Membership) -> None:
        """A change must not leave a cluster that could not even commit it."""
        core = self._core
        well = sum(node_id == core.node_id or self._is_well(node_id) for node_id in after.voters)
        if well < after.majority:
            raise MembershipError(f"of {after} only {well} are well: that is no majority")

    def _is_well(self, node_id: int) -> bool:
        core = self._core
        follower = core.progress.get(node_id)
        if follower is None or follower.incarnation != core.membership.members[node_id]:
            return False
        return core.now_ms - follower.heard_ms < core.config.election_timeout_ms

    def _check_caught_up(self, node_id: int) -> None:
        core = self._core
        follower = core.progress[node_id]
        if follower.incarnation != core.membership.observers[node_id]:
            raise MembershipError(f"node {node_id} has not answered under the incarnation it was added with")
        lag = core.log.last_index - follower.match_index
        if lag > core.config.promote_lag_entries_max:
            raise MembershipError(f"node {node_id} is {lag} entries behind: wait until it has caught up")


def _rebuild(recovered: Recovered, bootstrap: Membership) -> tuple[RaftLog, MembershipHistory]:
    """The log and the memberships as the storage kept them.

    The entries are used if the snapshot's last one is among them (or directly before them); else a crash
    came between saving an installed snapshot and dropping the log it replaced, and the snapshot wins.
    """
    snapshot, entries = recovered.snapshot, list(recovered.entries)
    index, term = (snapshot.index, snapshot.term) if snapshot is not None else (0, 0)
    memberships = MembershipHistory(index, snapshot.membership if snapshot is not None else bootstrap)
    base_index, base_term = index, term
    if entries and entries[0].index <= index:
        position = index - entries[0].index
        if position < len(entries) and entries[position].term == term:
            base_index, base_term = entries[0].index, entries[0].term
            del entries[0]
        else:
            entries = []
    elif entries and entries[0].index != index + 1:
        raise ConsensusError(f"the stored log begins at {entries[0].index}, but the snapshot ends at {index}")
    for entry in entries:
        if entry.kind is EntryKind.MEMBERSHIP and entry.index > index:
            memberships.append(entry.index, codec.decode_membership(entry.payload))
    return RaftLog(base_index, base_term, entries), memberships


def _on_install_reply(core: Core, reply: InstallReply) -> None:
    follower = replication.hear_follower(core, reply.sender, reply.incarnation)
    if follower is not None:
        snapshots.on_install_reply(core, reply, follower)


_HANDLERS: dict[type, Callable[..., None]] = {
    VoteRequest: election.on_vote_request,
    VoteReply: lambda core, reply: _on_vote_reply(core, reply),
    AppendRequest: replication.on_append,
    AppendReply: replication.on_append_reply,
    Heartbeat: replication.on_heartbeat,
    HeartbeatReply: replication.on_heartbeat_reply,
    InstallRequest: snapshots.on_install,
    InstallReply: _on_install_reply,
    TimeoutNow: election.on_timeout_now,
}


def _on_vote_reply(core: Core, reply: VoteReply) -> None:
    was = core.role
    election.on_vote_reply(core, reply)
    if core.role is Role.LEADER and was is not Role.LEADER:
        replication.begin_leading(core)
