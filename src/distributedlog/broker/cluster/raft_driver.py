"""Performs what a Raft node decides, in the order it asks for.

    message, timer, request  ->  node  ->  ready:  send, restore, apply, answer reads
                                              \\->  persist, in the executor, one at a time
                                                     hard state, snapshot, truncation, entries, sync
                                                     -> advance -> ready ...

The driver runs on one thread, the scheduler's.  Storage blocks, so it runs in the executor; while it does,
messages are still handled, and what they ask to be persisted gathers into the next write: one sync serves
many.  Nothing is polled: the scheduler is asked to wake the driver when the node's next deadline comes.

What a crash does: the process is gone; the storage recovers; the node starts as a follower.  If the
storage lost what it had synced, the node takes a new incarnation before anything else, durably, and so
is no voter until it is removed and added again.

What an error does: a write or sync that fails is never tried again, and an entry that the state machine
cannot apply is never passed over.  The driver stops, `failed` is told, and whoever waits gets
LeadershipLostError, because nobody knows what will become of it.  A stopped driver refuses requests.

Two refusals are no failures.  A full disk has written nothing, and is waited for as a slow one would be: the
same state and entries are written again, until there is room.  (Not so where a log is cut or replaced: what
was done of that is not known, and the driver stops.)  A state too large for a snapshot keeps its log: every
node would refuse it at the same entry, now and after each restart, and none would be left.

What others send is taken only if the node admits it (`raft/admission`).  What is refused changes nothing,
here and on the disk, and `refused` is told of it.

`progressed` is called after every change that may concern who leads or what is applied: it is where the
owner looks at `status`.  It may itself propose; what that leads to is told by another call.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from distributedlog.broker.cluster.leader_watch import SilentLeader
from distributedlog.model.errors import (
    ConsensusError,
    DiskFullError,
    LeadershipLostError,
    MalformedMessageError,
    NotLeaderError,
    RecordTooLargeError,
)
from distributedlog.ports.clock import Clock
from distributedlog.ports.executor import Done, Executor, Outcome
from distributedlog.ports.randomness import Randomness
from distributedlog.ports.scheduler import Scheduler
from distributedlog.ports.transport import Transport
from distributedlog.raft import (
    Change,
    Contents,
    Entry,
    EntryKind,
    HardState,
    IsKnownVoter,
    Loaded,
    Membership,
    Message,
    Persist,
    RaftConfig,
    RaftNode,
    Ready,
    Recovered,
    Role,
    Snapshot,
    Status,
    codec,
)
from distributedlog.raft.admission import no_known_voter

MALFORMED: Final = "malformed"
"""The reason, beside those of `Refusal`, for bytes that are no message, or one that lies about its sender."""

INCARNATION_MAX = 2**62
DISK_FULL_PAUSE_MS: Final = 500
"""The pause before what found no room is written again."""

logger = logging.getLogger(__name__)


class RaftStorage(Protocol):
    """Where one node's state lives.  Every method may block and may raise; after that it is not used."""

    def load(self) -> Loaded:
        """Returns what was durable.  A torn tail is cut; a gap behind the synced end is reported as lost."""
        ...

    def save_hard_state(self, hard_state: HardState) -> None:
        """Saves the hard state, durably on return; a crash within leaves the old or the new one."""
        ...

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Saves the snapshot, durably on return; a crash within leaves the old or the new one."""
        ...

    def reset_log(self, next_index: int) -> None:
        """Drops every entry; durable on return.  The next one appended is `next_index`."""
        ...

    def truncate_from(self, index: int) -> None:
        """Drops entries from `index` on; durable on return, so that no old tail returns behind new ones."""
        ...

    def append(self, entries: Sequence[Entry]) -> None:
        """Continues the log; durable after `sync`.  The same ones again, because that found no room, are not
        appended twice."""
        ...

    def sync(self) -> None: ...

    def trim_before(self, index: int) -> None:
        """Entries before `index` are in the snapshot and may go, now or later."""
        ...


class StateMachine(Protocol):
    """What the log drives.  Called on the driver's thread, in the log's order."""

    def apply(self, entry: Entry) -> object:
        """Applies a committed command; what it returns goes to whoever proposed it here."""
        ...

    def snapshot(self) -> bytes | None:
        """Returns the state after the last entry applied; None: not now, since it knows of later ones."""
        ...

    def restore(self, data: bytes) -> None: ...


Refused = Callable[[int, str], None]
"""Whose message was not taken, and why: MALFORMED, or the word of a `Refusal`."""


class _Proposal(NamedTuple):
    term: int
    done: Done[object]


class _Read(NamedTuple):
    read_index: int
    done: Done[None]


def write_persist(storage: RaftStorage, persist: Persist) -> None:
    """Makes a `Persist` durable.  The order is what makes a crash between two steps harmless."""
    if persist.hard_state is not None:
        storage.save_hard_state(persist.hard_state)
    if persist.snapshot is not None:
        storage.save_snapshot(persist.snapshot)
        if persist.snapshot_installed:
            storage.reset_log(persist.snapshot.index + 1)
    if persist.truncate_from is not None:
        storage.truncate_from(persist.truncate_from)
    if persist.entries:
        storage.append(persist.entries)
        storage.sync()
    if persist.snapshot is not None and not persist.snapshot_installed:
        storage.trim_before(persist.log_start_index)


class RaftDriver:
    def __init__(
        self,
        node_id: int,
        config: RaftConfig,
        bootstrap: Membership,
        machine: StateMachine,
        *,
        storage: RaftStorage,
        transport: Transport,
        executor: Executor,
        clock: Clock,
        scheduler: Scheduler,
        randomness: Randomness,
        snapshot_interval_entries: int,
        failed: Callable[[BaseException], None],
        progressed: Callable[[], None] = lambda: None,
        is_known_voter: IsKnownVoter = no_known_voter,
        contents: Contents | None = None,
        refused: Refused = lambda sender, reason: None,
        founding_incarnation: int = 0,
    ) -> None:
        """Recovers (this blocks) and begins to follow.  `founding_incarnation`: of a cluster that this node
        founds alone, if its storage is not of the incarnation 0."""
        self._config = config
        self._machine = machine
        self._storage = storage
        self._transport = transport
        self._executor = executor
        self._clock = clock
        self._scheduler = scheduler
        self._failed = failed
        self._progressed = progressed
        self._refused = refused
        self._snapshot_interval_entries = snapshot_interval_entries
        self._proposals: dict[int, _Proposal] = {}
        self._reads: dict[int, Done[None]] = {}
        self._reads_confirmed: deque[_Read] = deque()
        self._next_request_id = 0
        self._wake_ms: int | None = None
        self._pumping = False
        self._stopped = False
        self._disk_is_full = False

        recovered = _recover(storage, randomness)
        if recovered.hard_state.incarnation and [*bootstrap.voters] == [node_id]:
            bootstrap = Membership({node_id: founding_incarnation})
        if recovered.snapshot is not None:
            machine.restore(recovered.snapshot.data)
        self._applied_index = self._snapshot_index = recovered.snapshot.index if recovered.snapshot else 0
        self.node = RaftNode(
            node_id,
            config,
            randomness.between,
            bootstrap,
            recovered,
            clock.monotonic_ms(),
            is_known_voter=is_known_voter,
            contents=contents,
        )
        transport.on_receive(self.receive)
        self._arm()

    # --- requests ------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        return self.node.status

    @property
    def applied_index(self) -> int:
        return self._applied_index

    def propose(self, payload: bytes, done: Done[object]) -> int:
        """Proposes a command and returns the index at which it will stand, if it stands anywhere; `done` gets
        what the state machine returned, or LeadershipLostError.  Raises if nothing was done.
        """
        self._check_running()
        entry = self.node.propose([payload])
        self._proposals[entry.index] = _Proposal(entry.term, done)
        self._pump()
        return entry.index

    def change_membership(self, change: Change, done: Done[object]) -> None:
        """Proposes a change as `propose` does; `done` gets None once the change is made."""
        self._check_running()
        entry = self.node.change_membership(change)
        self._proposals[entry.index] = _Proposal(entry.term, done)
        self._pump()

    def read(self, done: Done[None]) -> None:
        """Calls `done` when the state machine may be read as of now, or with LeadershipLostError."""
        self._check_running()
        self._next_request_id += 1
        self.node.read_index(self._next_request_id)
        self._reads[self._next_request_id] = done
        self._pump()

    def transfer_leadership(self, target: int) -> None:
        self._check_running()
        self.node.transfer_leadership(target, self._clock.monotonic_ms())
        self._pump()

    @property
    def is_following(self) -> bool:
        core = self.node.core
        return not self._stopped and core.role is Role.FOLLOWER and core.leader_id is not None

    def find_silent_leader(self, silence_ms: int) -> SilentLeader | None:
        """Returns the leader that a voter follows, if it was not heard for so long.  Who does not vote stands
        against nobody, and one that was removed would look for its leader for ever."""
        core = self.node.core
        if not self.is_following or core.leader_id is None or not core.is_voter:
            return None
        is_silent = self._clock.monotonic_ms() - core.leader_heard_ms >= silence_ms
        return SilentLeader(core.leader_id, core.leader_heard_ms) if is_silent else None

    def leader_refuses(self, leader: SilentLeader) -> None:
        if not self._stopped and self.node.core.leader_heard_ms == leader.heard_ms:
            self.node.leader_refused(leader.leader_id, self._clock.monotonic_ms())
            self._arm()

    def _check_running(self) -> None:
        if self._stopped:
            raise NotLeaderError("this node has stopped")

    def stop(self) -> None:
        """Takes part no more.  What is being written may still become durable."""
        if not self._stopped:
            self._stopped = True
            self._fail_waiting()

    # --- events --------------------------------------------------------------------------------

    def receive(self, sender: int, data: bytes) -> None:
        """A message came; one that is malformed, or that lies about its sender, is dropped."""
        if self._stopped:
            return
        try:
            message = codec.decode(data, self._config)
        except MalformedMessageError:
            self._refused(sender, MALFORMED)
            return
        if message.sender == sender:
            self._handle(message)
        else:
            self._refused(sender, MALFORMED)

    def _handle(self, message: Message) -> None:
        try:
            refusal = self.node.step(message, self._clock.monotonic_ms())
        except ConsensusError as error:
            self._fail(error)
            return
        if refusal is not None:
            self._refused(message.sender, refusal.value)
            return
        self._pump()

    def _wake(self, planned_ms: int) -> None:
        if self._stopped or self._wake_ms != planned_ms:
            return
        self._wake_ms = None
        now_ms = self._clock.monotonic_ms()
        deadline_ms = self.node.next_deadline_ms()
        if deadline_ms is not None and now_ms >= deadline_ms:
            self.node.tick(now_ms)
            self._pump()
        else:
            self._arm()

    def _arm(self) -> None:
        """One alarm is set at a time; one that goes off before the deadline sets the next."""
        deadline_ms = self.node.next_deadline_ms()
        if deadline_ms is not None and (self._wake_ms is None or deadline_ms < self._wake_ms):
            self._wake_ms = deadline_ms
            self._scheduler.call_at(deadline_ms, lambda: self._wake(deadline_ms))

    # --- effects -------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Performs what is ready until nothing is.  What happens meanwhile joins the same loop."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while not self._stopped and self.node.has_ready:
                self._perform(self.node.ready())
        except Exception as error:  # half performed: the rest of what was committed would be passed over
            self._fail(error)
            raise
        finally:
            self._pumping = False
        if self._proposals and self.node.core.role is not Role.LEADER:
            self._fail_proposals()
        if not self._stopped:
            self._arm()
        self._progressed()

    def _perform(self, ready: Ready) -> None:
        for message in ready.messages:
            self._transport.send(message.to, codec.encode(message))
        if ready.restore is not None:
            self._machine.restore(ready.restore.data)
            self._applied_index = self._snapshot_index = ready.restore.index
        if ready.persist is not None:
            self._begin_persist(ready.persist)
        self._apply(ready.committed)
        for read in ready.reads:
            self._reads_confirmed.append(_Read(read.read_index, self._reads.pop(read.request_id)))
        if self._reads_confirmed:
            self._answer_reads()
        for request_id in ready.reads_lost:
            self._reads.pop(request_id)(Outcome(error=_lost()))

    def _begin_persist(self, persist: Persist) -> None:
        def done(outcome: Outcome[None]) -> None:
            self._scheduler.post(lambda: self._persisted(persist, outcome))

        self._executor.run_blocking(lambda: write_persist(self._storage, persist), done)

    def _persisted(self, persist: Persist, outcome: Outcome[None]) -> None:
        if self._stopped:
            return
        if isinstance(outcome.error, DiskFullError) and _may_be_written_again(persist):
            self._persist_later(persist, outcome.error)
            return
        if outcome.error is not None:
            self._fail(outcome.error)
            return
        self._disk_is_full = False
        self.node.advance(persist)
        self._pump()

    def _persist_later(self, persist: Persist, error: DiskFullError) -> None:
        if not self._disk_is_full:
            self._disk_is_full = True
            logger.warning("consensus waits for room on the disk: %s", error)

        def again() -> None:
            if not self._stopped:
                self._begin_persist(persist)

        self._scheduler.call_at(self._clock.monotonic_ms() + DISK_FULL_PAUSE_MS, again)

    def _apply(self, committed: Sequence[Entry]) -> None:
        for entry in committed:
            result = self._machine.apply(entry) if entry.kind is EntryKind.COMMAND else None
            self._applied_index = entry.index
            proposal = self._proposals.pop(entry.index, None)
            if proposal is not None:
                lost = proposal.term != entry.term
                proposal.done(Outcome(error=_lost()) if lost else Outcome(result))
        if self._applied_index - self._snapshot_index >= self._snapshot_interval_entries:
            self._take_snapshot()

    def _take_snapshot(self) -> None:
        data = self._machine.snapshot()
        if data is None:
            return
        self._snapshot_index = self._applied_index
        try:
            self.node.take_snapshot(self._applied_index, data)
        except RecordTooLargeError as error:
            logger.error("the metadata log is kept whole: %s", error)

    def _answer_reads(self) -> None:
        while self._reads_confirmed and self._reads_confirmed[0].read_index <= self._applied_index:
            self._reads_confirmed.popleft().done(Outcome(None))

    # --- endings -------------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        if not self._stopped:
            self.stop()
            self._failed(error)

    def _fail_waiting(self) -> None:
        self._fail_proposals()
        reads, self._reads = list(self._reads.values()), {}
        reads += [read.done for read in self._reads_confirmed]
        self._reads_confirmed.clear()
        for done in reads:
            done(Outcome(error=_lost()))

    def _fail_proposals(self) -> None:
        proposals, self._proposals = self._proposals, {}
        for proposal in proposals.values():
            proposal.done(Outcome(error=_lost()))


def _may_be_written_again(persist: Persist) -> bool:
    """Every step of it leaves things as they were, or as they are to be, if there is no room for it."""
    return not persist.snapshot_installed and persist.truncate_from is None


def _lost() -> LeadershipLostError:
    return LeadershipLostError("the node stopped leading; what was asked of it may or may not happen yet")


def _recover(storage: RaftStorage, randomness: Randomness) -> Recovered:
    """Loads; a storage that lost something gets a new incarnation before it is used."""
    recovered, lost = storage.load()
    if not lost:
        return recovered
    incarnation = randomness.between(1, INCARNATION_MAX)
    hard_state = recovered.hard_state._replace(incarnation=incarnation)
    storage.save_hard_state(hard_state)
    return recovered._replace(hard_state=hard_state)


__all__ = ["RaftDriver", "RaftStorage", "Scheduler", "StateMachine", "write_persist"]
