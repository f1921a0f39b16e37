"""Joins the Raft log to the controller: what is committed becomes the image, and the leader is in charge.

    follower   committed entry  ->  replica (the image)
    leader     request  ->  runtime  ->  bundle  ->  propose  ->  ... committed ->  replica, then the answer

| Raft says                              | the runtime is told                                           |
|----------------------------------------|---------------------------------------------------------------|
| leads, in a term not seen yet          | elected; the log's end of that moment is to be applied first  |
| applied that far                       | a machine that starts from the committed image; loaded        |
| an entry of the term it leads applied  | committed up to there                                         |
| leads no more, or in another term      | leadership lost: whoever waits is told that nobody knows      |

An index says nothing by itself: another leader's entry may stand where ours was to stand.  Only an entry that
carries the term in which this node leads is one that it appended, so only such entries count as commits of
the runtime.

The machine takes the replica's image as it is, so taking over costs nothing however many partitions there
are.  An answer that has no entry of its own (a heartbeat, a refusal) leaves only after a majority confirmed
that this node still leads: a controller that was overtaken and does not know it is obeyed by nobody.

What a crash does: nothing here is kept; the log is read again.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from distributedlog.broker.metadata import MetadataReplica
from distributedlog.broker.quorum import quorum_reply
from distributedlog.broker.raft_driver import RaftDriver, Scheduler
from distributedlog.control.contract import ControllerReply
from distributedlog.controller.bundles import encode_bundle
from distributedlog.controller.configs import ControllerConfig
from distributedlog.controller.machine import ControllerMachine
from distributedlog.controller.placement import Chance
from distributedlog.controller.records import Versioned
from distributedlog.controller.requests import DescribeQuorumRequest, Request, Response
from distributedlog.controller.snapshots import encode_snapshot
from distributedlog.model.errors import ConsensusError, DlogError, NotLeaderError
from distributedlog.ports.clock import Clock
from distributedlog.ports.executor import Done, Outcome
from distributedlog.raft import Entry, Role
from distributedlog.statemachine.runtime import Answer, Phase, Runtime, RuntimeLimits

LOAD_AGAIN_MS = 50
"""After an append that failed although this node leads: it is handing over, or its log is full."""


class _Asked(NamedTuple):
    done: Done[ControllerReply]
    term: int
    """In which this node was in charge when it was asked."""


class ControllerDriver:
    """The Raft driver's state machine.  Call it on the control loop only."""

    def __init__(
        self,
        config: ControllerConfig,
        chance: Chance,
        replica: MetadataReplica,
        *,
        clock: Clock,
        scheduler: Scheduler,
        failed: Callable[[BaseException], None],
        limits: RuntimeLimits | None = None,
        activity: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """`failed` is told when the log cannot be this cluster's; `activity` when this node takes charge, or
        no longer has it."""
        self.replica = replica
        self.config = config
        self._chance = chance
        self._clock = clock
        self._scheduler = scheduler
        self._failed = failed
        self._activity = activity
        self._was_active = False
        self._raft: RaftDriver | None = None
        self._runtime: Runtime[Request, Versioned, Response, None] = Runtime(self._machine, self, limits)
        self._waiting: dict[int, _Asked] = {}
        self._term = 0
        """The term in which this node was last elected."""
        self._load_index = 0
        self._load_not_before_ms = 0
        self._own_committed_offset = -1
        self._unfit = False
        """The log is not one that this node may go on with."""
        self._busy = False
        self._again = False
        self._wake_ms: int | None = None

    def attach(self, raft: RaftDriver) -> None:
        """The driver that this machine belongs to; it tells of progress by `progressed`."""
        self._raft = raft
        self.progressed()

    @property
    def is_active(self) -> bool:
        """In charge, as far as this node knows."""
        return self._runtime.phase is Phase.ACTIVE

    @property
    def parked_count(self) -> int:
        return self._runtime.parked_count

    # --- the Raft driver's state machine -------------------------------------------------------

    def apply(self, entry: Entry) -> object:
        self.replica.entry(entry.payload, entry.index - 1)
        if entry.term == self._term:
            self._own_committed_offset = entry.index - 1
        return None

    def snapshot(self) -> bytes:
        return encode_snapshot(self.replica.image)

    def restore(self, data: bytes) -> None:
        self.replica.snapshot(data, -1)

    def progressed(self) -> None:
        """Something may have been applied, or somebody else may lead.  Not while a request is half done."""
        if self._raft is None or self._busy:
            self._again = True
            return
        self._busy = True
        try:
            self._again = True
            while self._again:
                self._again = False
                self._catch_up()
        finally:
            self._busy = False
        self._hand_out()

    # --- the runtime's log ---------------------------------------------------------------------

    def next_offset(self) -> int:
        return self._driver.status.last_index

    def append(self, records: Sequence[Versioned]) -> int:
        return self._driver.propose(encode_bundle(records), _ignore) - 1

    # --- requests ------------------------------------------------------------------------------

    def submit(self, request: Request, timeout_ms: int, done: Done[ControllerReply]) -> None:
        """`done` gets the reply once what it says is committed, or the error that says how it ended."""
        if isinstance(request, DescribeQuorumRequest):
            self._describe_quorum(done)
            return
        now_ms = self._clock.monotonic_ms()
        self._busy = True
        try:
            ticket = self._runtime.submit(request, now_ms, now_ms + timeout_ms)
        except NotLeaderError as error:
            done(Outcome(error=self._not_leader(str(error))))
        except DlogError as error:
            done(Outcome(error=error))
        else:
            self._waiting[ticket] = _Asked(done, self._term)
        finally:
            self._busy = False
        self.progressed()

    def _describe_quorum(self, done: Done[ControllerReply]) -> None:
        """Consensus itself is asked, once a majority confirmed that this node leads."""

        def confirmed(read: Outcome[None]) -> None:
            machine = self._runtime.machine
            if read.error is not None or not self.is_active or not isinstance(machine, ControllerMachine):
                done(Outcome(error=self._not_leader("this node stopped leading")))
                return
            reply = quorum_reply(self._driver.node.core, machine.heard(), self._clock)
            done(Outcome(ControllerReply(reply, self._runtime.committed_offset)))

        if not self.is_active:
            done(Outcome(error=self._not_leader("this node is not the active controller")))
            return
        try:
            self._driver.read(confirmed)
        except DlogError:
            done(Outcome(error=self._not_leader("this node does not lead any more")))

    def _not_leader(self, message: str) -> NotLeaderError:
        """With where to ask instead, if this node knows."""
        if self._raft is None:
            return NotLeaderError(message)
        leader_id = self._raft.status.leader_id
        return NotLeaderError(message, None if leader_id == self.config.controller_id else leader_id)

    # --- inside --------------------------------------------------------------------------------

    @property
    def _driver(self) -> RaftDriver:
        assert self._raft is not None, "attach comes first"
        return self._raft

    def _machine(self) -> ControllerMachine:
        return ControllerMachine(self.config, self._chance, self.replica.image)

    def _catch_up(self) -> None:
        """Brings the runtime to where Raft is.  What this leads to is seen by the next round."""
        runtime, status = self._runtime, self._driver.status
        if runtime.phase is not Phase.FOLLOWING:
            runtime.committed(self._own_committed_offset)
        leads = status.role is Role.LEADER
        if runtime.phase is not Phase.FOLLOWING and (not leads or status.term != self._term):
            runtime.leadership_lost()
        if leads and runtime.phase is Phase.FOLLOWING and not self._unfit:
            self._term = status.term
            self._load_index = status.last_index
            self._own_committed_offset = -1
            runtime.elected(status.term)
        self._load()
        self.replica.publish()

    def _load(self) -> None:
        runtime, raft, now_ms = self._runtime, self._driver, self._clock.monotonic_ms()
        if runtime.phase is not Phase.LOADING or raft.applied_index < self._load_index:
            return
        if now_ms < self._load_not_before_ms:
            return
        runtime.adopt(self._machine(), raft.applied_index - 1)
        try:
            runtime.loaded(now_ms)
        except ConsensusError as error:
            self._unfit = True
            runtime.leadership_lost()
            self._failed(error)
            return
        if runtime.phase is Phase.LOADING:
            self._append_failed(now_ms)

    def _append_failed(self, now_ms: int) -> None:
        """The machine may hold what the log does not: it starts again where the log ends, a little later."""
        self._load_index = self._driver.status.last_index
        self._load_not_before_ms = now_ms + LOAD_AGAIN_MS
        self._scheduler.call_at(self._load_not_before_ms, self.progressed)

    def _hand_out(self) -> None:
        outbox = self._runtime.take()
        if outbox.reload and self._runtime.phase is Phase.LOADING:
            self._append_failed(self._clock.monotonic_ms())
        offset = self._runtime.committed_offset
        for answer in outbox.answers:
            self._answer(answer, offset)
        if self.is_active is not self._was_active:
            self._was_active = self.is_active
            self._activity(self.is_active)
        self._arm()

    def _answer(self, answer: Answer[Response], offset: int) -> None:
        done, term = self._waiting.pop(answer.ticket)
        if answer.error is not None:
            outcome: Outcome[ControllerReply] = Outcome(error=answer.error)
        else:
            outcome = Outcome(ControllerReply(answer.response, offset))
        if not answer.needs_leadership:
            done(outcome)
            return
        if term != self._term:
            # What it was made from is of an earlier leadership: that this node leads now says nothing of it.
            done(Outcome(error=self._not_leader("this node did not lead all the time")))
            return

        def confirmed(read: Outcome[None]) -> None:
            lost = read.error is not None
            done(Outcome(error=self._not_leader("this node stopped leading")) if lost else outcome)

        try:
            self._driver.read(confirmed)
        except DlogError:
            done(Outcome(error=self._not_leader("this node does not lead any more")))

    def _arm(self) -> None:
        deadline_ms = self._runtime.next_deadline_ms()
        if deadline_ms is not None and (self._wake_ms is None or deadline_ms < self._wake_ms):
            self._wake_ms = deadline_ms
            self._scheduler.call_at(deadline_ms, lambda: self._wake(deadline_ms))

    def _wake(self, planned_ms: int) -> None:
        if self._wake_ms != planned_ms:
            return
        self._wake_ms = None
        now_ms = self._clock.monotonic_ms()
        deadline_ms = self._runtime.next_deadline_ms()
        if deadline_ms is not None and now_ms >= deadline_ms:
            self._busy = True
            try:
                self._runtime.tick(now_ms)
            finally:
                self._busy = False
        self.progressed()


def _ignore(_: Outcome[object]) -> None:
    """What became of an entry is seen when it is applied, or when leadership is lost."""
