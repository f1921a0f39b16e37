"""The state that elections, replication, snapshots and reads share, and the two doors out of it.

`send` is for messages that promise nothing.  `promise` is for messages that speak of what must survive a
crash (a vote given or asked for, entries stored): they are parked until all that was changed before them
is on the disk.  So the order "sync, then answer" is kept here, and no driver can get it wrong.

What a crash takes is everything but the hard state, the stored entries and the snapshot.  Parked
promises were never seen by anyone.  A promise of an earlier term is dropped when the term changes: its
receiver could no longer use it.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from distributedlog.model.errors import ConsensusError
from distributedlog.raft.config import RaftConfig
from distributedlog.raft.log import RaftLog
from distributedlog.raft.membership import Membership, MembershipHistory
from distributedlog.raft.messages import Entry, HardState, Message, Snapshot
from distributedlog.raft.progress import Progress
from distributedlog.raft.roles import TRANSITIONS, Role, RoleEvent

RETRY_HALVINGS: Final = 2
"""The first election that fails is asked for again after a quarter of a follower's time, the second after a
half."""

Draw = Callable[[int, int], int]
"""A whole number between two others, both included."""


class PendingRead(NamedTuple):
    request_id: int
    read_index: int
    round: int


class IncomingSnapshot:
    """A snapshot that arrives in chunks."""

    __slots__ = ("data", "index", "membership", "term", "total_bytes")

    def __init__(self, index: int, term: int, membership: Membership, total_bytes: int) -> None:
        self.index = index
        self.term = term
        self.membership = membership
        self.total_bytes = total_bytes
        self.data = bytearray()


class Core:
    """Mutable state only; the rules stand in the modules named after what they do."""

    def __init__(
        self,
        node_id: int,
        config: RaftConfig,
        draw: Draw,
        hard_state: HardState,
        log: RaftLog,
        memberships: MembershipHistory,
        snapshot: Snapshot | None,
        now_ms: int,
    ) -> None:
        self.node_id = node_id
        self.config = config
        self.draw = draw
        self.now_ms = now_ms

        self.term = hard_state.term
        self.vote = hard_state.vote
        self.incarnation = hard_state.incarnation
        self.hard_state_dirty = False

        self.log = log
        self.memberships = memberships
        self.snapshot = snapshot
        self.snapshot_unsaved = False
        self.snapshot_installed = False
        self.incoming: IncomingSnapshot | None = None
        self.commit_index = snapshot.index if snapshot is not None else 0
        self.applied_index = self.commit_index

        self.role = Role.FOLLOWER
        self.leader_id: int | None = None
        self.leader_heard_ms = now_ms
        self.election_deadline_ms = 0
        self.attempts = 0
        """Elections asked for since a leader was heard or a vote was given to another."""
        self.votes: dict[int, bool] = {}

        self.progress: dict[int, Progress] = {}
        self.heartbeat_deadline_ms = 0
        self.term_start_index = 0
        self.uncommitted_bytes = 0
        self.round = 0
        self.reads_waiting: list[int] = []
        self.reads_confirming: deque[PendingRead] = deque()
        self.reads_done: list[tuple[int, int]] = []
        self.reads_lost: list[int] = []
        self.transfer_target: int | None = None
        self.transfer_deadline_ms = 0
        self.transfer_sent = False

        self.outbox: list[Message] = []
        self.parked: list[tuple[int, Message]] = []
        self.persists_begun = 0
        self.persisting = False
        self.reset_election_timer()

    # --- membership ----------------------------------------------------------------------------

    @property
    def membership(self) -> Membership:
        return self.memberships.current

    @property
    def is_voter(self) -> bool:
        """Whether the membership names this node, under this incarnation, as a voter."""
        return self.memberships.current.voters.get(self.node_id) == self.incarnation

    def counts(self, node_id: int) -> bool:
        """Returns whether this voter's word goes into a majority (leaders only)."""
        incarnation = self.memberships.current.voters[node_id]
        if node_id == self.node_id:
            return incarnation == self.incarnation
        follower = self.progress.get(node_id)
        return follower is not None and follower.incarnation in (None, incarnation)

    def majority_of(self, own: int, of_follower: Callable[[Progress], int]) -> int:
        """The largest value that a majority of the voters has reached; 0 or less stands for none."""
        values = []
        for node_id in self.memberships.current.voters:
            if not self.counts(node_id):
                values.append(0)
            elif node_id == self.node_id:
                values.append(own)
            else:
                values.append(of_follower(self.progress[node_id]))
        values.sort(reverse=True)
        return values[self.memberships.current.majority - 1]

    # --- time ----------------------------------------------------------------------------------

    def reset_election_timer(self) -> None:
        self.attempts = 0
        timeout_ms = self.config.election_timeout_ms
        self.election_deadline_ms = self.now_ms + self.draw(timeout_ms, 2 * timeout_ms)

    def reset_retry_timer(self) -> None:
        """Sets the time at which an election that is under way is given up.  Two who ask at the same moment
        take each other's vote: the first time they try again soon, and then ever later, so that a slow
        network is no storm."""
        halvings = max(0, RETRY_HALVINGS - max(0, self.attempts - 1))
        retry_ms = self.config.election_timeout_ms >> halvings
        self.election_deadline_ms = self.now_ms + self.draw(retry_ms, 2 * retry_ms)

    @property
    def hears_leader(self) -> bool:
        """Whether a leader was here a moment ago, so that an election would only disturb."""
        if self.role is Role.LEADER:
            return True
        silence_ms = self.now_ms - self.leader_heard_ms
        return self.leader_id is not None and silence_ms < self.config.election_timeout_ms

    # --- roles ---------------------------------------------------------------------------------

    def change_role(self, event: RoleEvent) -> None:
        self.role = TRANSITIONS[self.role, event]

    def begin_term(self, term: int, vote: int | None) -> None:
        """Enters a later term; `vote` is given in it at once or not yet."""
        if term <= self.term:
            raise ConsensusError(f"node {self.node_id} cannot go from term {self.term} to {term}")
        self.term = term
        self.vote = vote
        self.hard_state_dirty = True
        self.parked.clear()
        self.incoming = None  # another leader's bytes for the same index need not be the same

    def follow(self, event: RoleEvent, leader_id: int | None) -> None:
        """Becomes, or stays, a follower of `leader_id` (None: of nobody yet)."""
        if self.role is Role.LEADER:
            self._stop_leading()
        self.change_role(event)
        self.leader_id = leader_id
        if leader_id is not None:
            self.leader_heard_ms = self.now_ms
        if event is RoleEvent.ELECTION_LOST:
            self.reset_retry_timer()
        else:
            self.reset_election_timer()

    def _stop_leading(self) -> None:
        self.reads_lost.extend(self.reads_waiting)
        self.reads_lost.extend(read.request_id for read in self.reads_confirming)
        self.reads_waiting.clear()
        self.reads_confirming.clear()
        self.progress.clear()
        self.transfer_target = None
        self.uncommitted_bytes = 0

    # --- messages ------------------------------------------------------------------------------

    @property
    def dirty(self) -> bool:
        return self.hard_state_dirty or self.snapshot_unsaved or self.log.has_unstored

    def send(self, message: Message) -> None:
        self.outbox.append(message)

    def promise(self, message: Message) -> None:
        """Sends once everything changed so far is durable."""
        if self.dirty:
            self.parked.append((self.persists_begun + 1, message))
        elif self.persisting:
            self.parked.append((self.persists_begun, message))
        else:
            self.outbox.append(message)

    def release_promises(self) -> list[Message]:
        """The last persist is durable: the promises that waited for it, in order."""
        done = self.persists_begun
        released = [message for ticket, message in self.parked if ticket <= done]
        self.parked = [waiting for waiting in self.parked if waiting[0] > done]
        return released

    # --- commitment ----------------------------------------------------------------------------

    def commit_to(self, index: int) -> bool:
        """Returns whether that is news."""
        if index <= self.commit_index:
            return False
        if index > self.log.last_index:
            raise ConsensusError(
                f"node {self.node_id} cannot commit {index}: its log ends at {self.log.last_index}"
            )
        self.commit_index = index
        return True

    def truncate_from(self, index: int) -> None:
        """Takes back entries that another leader overrules.  They were never committed."""
        if index <= self.commit_index:
            raise ConsensusError(
                f"node {self.node_id} must not truncate from {index}, but {self.commit_index} is committed"
            )
        self.log.truncate_from(index)
        self.memberships.truncate_from(index)

    def take_committed(self) -> list[Entry]:
        """Entries to apply next: committed, on this node's disk, and never given out before."""
        last = min(
            self.commit_index, self.log.stable_index, self.applied_index + self.config.apply_entries_max
        )
        if last <= self.applied_index:
            return []
        entries = self.log.range(self.applied_index + 1, last)
        self.applied_index = last
        return entries
