"""Joins the Raft log to the controller: what is committed becomes the image, and the leader is active.

    follower   committed entry  ->  replica (the image)
    leader     request  ->  runtime  ->  bundle  ->  propose  ->  ... committed ->  replica, then the answer

The host (`host`) does the rest; here is what is particular to Raft:

    epoch           the term in which this node leads
    load            the log's end of that moment is applied; then a machine that starts from the committed
                    image, as it is: taking over costs nothing however many partitions there are
    committed       up to the last applied entry that carries the term in which this node leads
    a read          leaves after a majority confirmed that this node still leads: a controller that was
                    overtaken and does not know it is obeyed by nobody

An index says nothing by itself: another leader's entry may stand where ours was to stand.  Only an entry that
carries the term in which this node leads is one that it appended, so only such entries count as commits of
the runtime.

What a crash does: nothing here is kept; the log is read again.
"""

from collections.abc import Callable, Sequence

from distributedlog.broker.cluster.metadata import MetadataReplica
from distributedlog.broker.cluster.port_watch import SilentBroker
from distributedlog.broker.cluster.quorum import quorum_reply
from distributedlog.broker.cluster.raft_driver import RaftDriver
from distributedlog.broker.cluster.voter_changes import VoterChanges
from distributedlog.broker.coordination.host import Confirmed, Host, HostCallbacks, Load
from distributedlog.control.contract import ControllerReply
from distributedlog.controller.bundles import encode_bundle
from distributedlog.controller.configs import ControllerConfig
from distributedlog.controller.image import ControllerRegistration
from distributedlog.controller.machine import ControllerMachine
from distributedlog.controller.placement import Chance
from distributedlog.controller.records import Versioned
from distributedlog.controller.requests import (
    AddVoterRequest,
    DescribeQuorumRequest,
    ForgetControllerRequest,
    RemoveVoterRequest,
    Request,
    Response,
)
from distributedlog.controller.snapshots import encode_snapshot
from distributedlog.model.errors import DlogError, NotLeaderError
from distributedlog.ports.clock import Clock
from distributedlog.ports.executor import Done, Outcome
from distributedlog.ports.scheduler import Scheduler
from distributedlog.raft import Entry, Role
from distributedlog.statemachine.runtime import NO_OFFSET, RuntimeLimits

LOAD_AGAIN_MS = 50
"""The pause after an append that failed although this node leads: it is handing over, or its log is full."""
FORGET_TIMEOUT_MS = 1_000


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
        """`failed` is called when the log cannot be this cluster's; `activity` when this node becomes the
        active controller, or is it no longer."""
        self.replica = replica
        self.config = config
        self._chance = chance
        self._clock = clock
        self._scheduler = scheduler
        self._raft: RaftDriver | None = None
        self._voter_changes: VoterChanges | None = None
        self._host: Host[Request, Versioned, Response, None] = Host(
            self._machine,
            self,
            self._confirm_read,
            HostCallbacks(
                activity=activity, failed=failed, map_error=self._name_leader, caught_up=self._caught_up
            ),
            clock=clock,
            scheduler=scheduler,
            load_again_ms=LOAD_AGAIN_MS,
            limits=limits,
        )
        self._load: Load[Versioned] | None = None
        self._load_index = 0
        self._own_committed_offset = NO_OFFSET
        """The offset of the last entry that was applied and carried the term in which this node led."""

    def attach(self, raft: RaftDriver) -> None:
        """The driver that this machine belongs to; it tells of progress by `progressed`."""
        self._raft = raft
        self._voter_changes = VoterChanges(
            raft, lambda: self.replica.image, self._forget, clock=self._clock, scheduler=self._scheduler
        )
        self.progressed()

    @property
    def is_active(self) -> bool:
        """Whether this is the active controller, as far as this node knows."""
        return self._host.is_active

    @property
    def term(self) -> int | None:
        """The term in which this node is the active controller, or is loading to be."""
        return self._host.epoch

    def find_silent(self) -> list[SilentBroker]:
        """Returns the brokers whose ports are to be tried; none if this is not the active controller."""
        machine = self._host.runtime.machine
        if not self.is_active or not isinstance(machine, ControllerMachine):
            return []
        return [
            SilentBroker(each.broker_id, each.epoch, each.endpoints)
            for each in machine.find_silent(self._clock.monotonic_ms())
        ]

    @property
    def delayed_count(self) -> int:
        return self._host.runtime.delayed_count

    # --- the Raft driver's state machine -------------------------------------------------------

    def apply(self, entry: Entry) -> object:
        self.replica.handle_entry(entry.payload, entry.index - 1)
        if entry.term == self._host.epoch:
            self._own_committed_offset = entry.index - 1
        return None

    def snapshot(self) -> bytes | None:
        image = self.replica.image
        is_ahead = self._raft is not None and image.offset >= self._raft.applied_index
        return None if is_ahead else encode_snapshot(image)  # ahead: it is fed by a watcher too

    def restore(self, data: bytes) -> None:
        self.replica.handle_snapshot(data)

    def check_entry(self, payload: bytes) -> None:
        """Raises for an entry that cannot be replayed: it is neither proposed nor accepted."""
        self.replica.check_entry(payload)

    def check_snapshot(self, data: bytes, index: int) -> None:
        self.replica.check_snapshot(data, index, self.config.cluster_id)

    def progressed(self) -> None:
        """Follows what may have been applied, or a change of the leader."""
        if self._raft is not None:
            self._host.progressed()

    # --- the host's log ------------------------------------------------------------------------

    def leader_epoch(self) -> int | None:
        status = self._driver.status
        return status.term if status.role is Role.LEADER else None

    def committed_offset(self, epoch: int) -> int:
        return self._own_committed_offset

    def is_writable(self) -> bool:
        return True

    def load(self, load: Load[Versioned]) -> None:
        self._load, self._load_index = load, self._driver.status.last_index

    def _caught_up(self) -> None:
        """Finishes a load if all that it waits for is applied; then shows what is."""
        raft = self._driver
        if self._load is not None and raft.applied_index >= self._load_index:
            load, self._load = self._load, None
            load.adopt(self._machine(), raft.applied_index - 1)
            load.finish()
        self.replica.publish()

    def next_offset(self) -> int:
        return self._driver.status.last_index

    def append(self, records: Sequence[Versioned]) -> int:
        return self._driver.propose(encode_bundle(records), _ignore) - 1

    # --- requests ------------------------------------------------------------------------------

    def submit(self, request: Request, timeout_ms: int, done: Done[ControllerReply]) -> None:
        """Submits a request; `done` gets the reply once what it says is committed, or the error that says how
        it ended."""
        if isinstance(request, DescribeQuorumRequest):
            self._describe_quorum(done)
            return
        if isinstance(request, AddVoterRequest | RemoveVoterRequest):
            self._change_voters(request, timeout_ms, done)
            return

        def replied(outcome: Outcome[Response]) -> None:
            if outcome.error is not None:
                done(Outcome(error=outcome.error))
            else:
                done(Outcome(ControllerReply(outcome.value(), self._host.runtime.committed_offset)))

        self._host.submit(request, self._clock.monotonic_ms() + timeout_ms, replied)

    def _confirm_read(self, confirmed: Confirmed) -> None:
        """Asks a majority whether this node still leads."""

        def read(outcome: Outcome[None]) -> None:
            confirmed(None if outcome.error is None else NotLeaderError("this node stopped leading"))

        try:
            self._driver.read(read)
        except DlogError:
            confirmed(NotLeaderError("this node does not lead any more"))

    def _describe_quorum(self, done: Done[ControllerReply]) -> None:
        """Consensus itself is asked, once a majority confirmed that this node leads."""

        def confirmed(error: DlogError | None) -> None:
            machine = self._host.runtime.machine
            if error is not None or not self.is_active or not isinstance(machine, ControllerMachine):
                done(Outcome(error=self._not_leader("this node stopped leading")))
                return
            reply = quorum_reply(self._driver.node.core, machine.heard(), self._clock)
            done(Outcome(ControllerReply(reply, self._host.runtime.committed_offset)))

        if not self.is_active:
            done(Outcome(error=self._not_leader("this node is not the active controller")))
            return
        self._confirm_read(confirmed)

    def _change_voters(
        self, request: AddVoterRequest | RemoveVoterRequest, timeout_ms: int, done: Done[ControllerReply]
    ) -> None:
        """Consensus itself is changed; the reply comes when that has committed."""

        def changed(outcome: Outcome[None]) -> None:
            error = outcome.error
            if isinstance(error, NotLeaderError) and error.leader_id is None:
                error = self._name_leader(error)
            if error is not None:
                done(Outcome(error=error))
            else:
                done(Outcome(ControllerReply(None, self._host.runtime.committed_offset)))

        if not self.is_active or self._voter_changes is None:
            done(Outcome(error=self._not_leader("this node is not the active controller")))
        elif isinstance(request, AddVoterRequest):
            self._voter_changes.add(request, timeout_ms, changed)
        else:
            self._voter_changes.remove(request, timeout_ms, changed)

    def _forget(self, registration: ControllerRegistration, then: Callable[[], None]) -> None:
        self.submit(ForgetControllerRequest(registration), FORGET_TIMEOUT_MS, lambda _: then())

    def _name_leader(self, error: DlogError) -> DlogError:
        return self._not_leader(str(error)) if isinstance(error, NotLeaderError) else error

    def _not_leader(self, message: str) -> NotLeaderError:
        """Returns the error of a node that does not lead, with where to ask instead if this node knows."""
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


def _ignore(_: Outcome[object]) -> None:
    """Does nothing: what became of an entry is seen when it is applied, or when leadership is lost."""
