"""Asks the active controller, wherever it is, and answers when what it did can be seen here.

    ask -> a voter -> reply -> wait until our own image has the reply's offset -> done
             |-> not the leader: where it says, else another voter
             |-> unreachable, still loading, not of this cluster: another voter, after a pause
             |-> unknown what became of it: again if asking twice does no harm, else that is the answer

A voter that leads is remembered; `leader_changed` tells of another, and whoever waits for the old one with a
request that does no harm twice asks the new one at once.  Pauses grow and have jitter; all ends at the
request's deadline.  A request that does no harm twice is given up after a part of the time and asked
elsewhere: a controller that hangs (stopped, not dead) closes no connection.
"""

from collections.abc import Callable, Sequence
from typing import Final

from distributedlog.broker.cluster.metadata import MetadataReplica
from distributedlog.control.contract import ControllerClient, ControllerReply, ControllerService
from distributedlog.controller.requests import (
    AllocateProducerIdsRequest,
    AlterConfigsRequest,
    AlterPartitionsRequest,
    AlterQuotasRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DescribeQuorumRequest,
    ElectLeadersRequest,
    HeartbeatRequest,
    IncrementalAlterConfigsRequest,
    ReadImageRequest,
    RegisterBrokerRequest,
    RegisterControllerRequest,
    Request,
    Response,
    UpdateFeaturesRequest,
)
from distributedlog.model.errors import (
    ClusterAuthorizationError,
    LeadershipLostError,
    LoadInProgressError,
    NotLeaderError,
    OverloadedError,
    RequestTimedOutError,
    UnreachableError,
)
from distributedlog.ports.clock import Clock
from distributedlog.ports.executor import Done, Outcome
from distributedlog.ports.randomness import Randomness
from distributedlog.ports.scheduler import Scheduler

PAUSE_MS_MIN: Final = 20
PAUSE_MS_MAX: Final = 500
TRY_MS: Final = 1_500
"""How long one voter is waited for, if asking another meanwhile does no harm."""
BEHIND_MS: Final = 1_000
"""How long our own image may take to show what a controller has committed."""

_SAFE_TO_RETRY: Final = (
    AllocateProducerIdsRequest,  # a block may be lost: there are enough
    AlterPartitionsRequest,  # the partition epoch refuses the second
    DescribeQuorumRequest,
    ElectLeadersRequest,
    HeartbeatRequest,
    ReadImageRequest,
    RegisterControllerRequest,  # says what is
    RegisterBrokerRequest,  # one incarnation, one registration
    UpdateFeaturesRequest,
)
_CHANGES: Final = (
    AlterConfigsRequest,  # between the two another may have set another value, and was told that it holds
    AlterQuotasRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    IncrementalAlterConfigsRequest,
)
_NOTHING_DONE: Final = (
    ClusterAuthorizationError,
    LoadInProgressError,
    NotLeaderError,
    OverloadedError,
    UnreachableError,
)
_UNKNOWN: Final = (LeadershipLostError, RequestTimedOutError)


def is_safe_to_retry(request: Request) -> bool:
    """Returns whether it may be sent again while the outcome is unknown: somebody else's request that comes
    between the two is not undone by the second."""
    if isinstance(request, _CHANGES):
        return request.validate_only
    return isinstance(request, _SAFE_TO_RETRY)


class ControllerForwarder:
    """Call it on the control loop only."""

    def __init__(
        self,
        node_id: int,
        voters: Sequence[int],
        client: ControllerClient,
        local: ControllerService | None,
        replica: MetadataReplica,
        *,
        clock: Clock,
        scheduler: Scheduler,
        randomness: Randomness,
        behind: Callable[[], None] = lambda: None,
    ) -> None:
        """`local` is the controller in this process, if this node is a voter.  `behind` is called when our
        own image does not come to show what was done: the voter that feeds it may be partitioned away."""
        self.node_id = node_id
        self.voters = list(voters)
        """Whom to ask; replaced when others are known."""
        self.client = client
        self.local = local
        self.replica = replica
        self.clock = clock
        self.scheduler = scheduler
        self.randomness = randomness
        self.behind = behind
        self._leader_id: int | None = None
        self._next = 0
        self._closed = False
        self._waiting: dict[_Attempt, int] = {}
        """Who is asked by each request that may be asked elsewhere meanwhile."""

    def ask(
        self, request: Request, timeout_ms: int, done: Done[Response], *, until_visible: bool = True
    ) -> None:
        """Sends a request to the active controller; `done` gets the response, once, or the error that says
        what is known of the outcome."""
        _Attempt(self, request, self.clock.monotonic_ms() + timeout_ms, done, until_visible).begin()

    def close(self) -> None:
        """No voter is asked any more; what is under way ends as unknown."""
        self._closed = True

    @property
    def is_closed(self) -> bool:
        return self._closed

    def choose_voter(self) -> int:
        """Chooses who is asked next: the leader if one is known, else each voter in its turn, ourselves
        first."""
        if self._leader_id is not None:
            return self._leader_id
        if self._next == 0 and self.local is not None:
            self._next = self.voters.index(self.node_id) if self.node_id in self.voters else 0
        self._next += 1
        return self.voters[(self._next - 1) % len(self.voters)]

    def learn(self, asked: int, leader_id: int | None) -> bool:
        """Notes who leads, as `asked` told; returns whether that is another voter."""
        known = leader_id is not None and leader_id in self.voters and leader_id != asked
        self._leader_id = leader_id if known else None
        return known

    def confirm(self, leader_id: int) -> None:
        self._leader_id = leader_id

    def leader_changed(self, leader_id: int | None) -> None:
        """Consensus, or the metadata, says who leads; None: nobody that we know of."""
        if leader_id == self._leader_id:
            return
        self._leader_id = leader_id if leader_id in self.voters else None
        if self._leader_id is not None:
            for attempt, asked in list(self._waiting.items()):
                if asked != leader_id:
                    attempt.ask_elsewhere()

    def waits(self, attempt: "_Attempt", asked: int) -> None:
        self._waiting[attempt] = asked

    def waits_no_more(self, attempt: "_Attempt") -> None:
        self._waiting.pop(attempt, None)

    def doubt(self, asked: int) -> None:
        if self._leader_id == asked:
            self._leader_id = None


class _Attempt:
    """One request, through as many tries as it takes."""

    def __init__(
        self,
        owner: ControllerForwarder,
        request: Request,
        deadline_ms: int,
        done: Done[Response],
        until_visible: bool,
    ) -> None:
        self._owner = owner
        self._request = request
        self._deadline_ms = deadline_ms
        self._done: Done[Response] | None = done
        self._until_visible = until_visible
        self._pause_ms = PAUSE_MS_MIN
        self._hints_left = 2
        self._last_error: BaseException | None = None
        self._try = 0
        self._asked: int | None = None
        self._is_answered = False
        self._forget_waiter: Callable[[], None] = lambda: None

    def begin(self) -> None:
        self._owner.scheduler.call_at(self._deadline_ms, self._out_of_time)
        self._ask()

    def _ask(self) -> None:
        if self._done is None:
            return
        owner = self._owner
        if owner.is_closed:
            self._finish(Outcome(error=RequestTimedOutError("this node is stopping")))
            return
        left_ms = self._deadline_ms - owner.clock.monotonic_ms()
        if left_ms <= 0:
            self._out_of_time()
            return
        self._try += 1
        number, asked = self._try, owner.choose_voter()
        self._asked = asked

        def answered(outcome: Outcome[ControllerReply]) -> None:
            if number == self._try and self._done is not None:
                self._try += 1
                owner.waits_no_more(self)
                self._answered(asked, outcome)

        if is_safe_to_retry(self._request):
            owner.waits(self, asked)
            left_ms = min(left_ms, TRY_MS)
            hung = RequestTimedOutError(f"node {asked} did not answer")
            owner.scheduler.call_at(
                owner.clock.monotonic_ms() + left_ms, lambda: answered(Outcome(error=hung))
            )
        if asked == owner.node_id and owner.local is not None:
            owner.local.submit(self._request, left_ms, answered)
        else:
            owner.client.call(asked, self._request, left_ms, answered)

    def ask_elsewhere(self) -> None:
        """Another leads now: what the one that was asked says, if it ever does, is of no interest."""
        self._owner.waits_no_more(self)
        self._try += 1
        self._ask()

    def _answered(self, asked: int, outcome: Outcome[ControllerReply]) -> None:
        owner, error = self._owner, outcome.error
        if error is None:
            owner.confirm(asked)
            self._succeeded(outcome.value())
        elif isinstance(error, NotLeaderError) and owner.learn(asked, error.leader_id) and self._hints_left:
            self._hints_left -= 1
            self._ask()
        elif isinstance(error, _NOTHING_DONE) or (
            isinstance(error, _UNKNOWN) and is_safe_to_retry(self._request)
        ):
            if not isinstance(error, LoadInProgressError | OverloadedError):
                owner.doubt(asked)
            self._last_error = error
            self._pause()
        else:
            if isinstance(error, _UNKNOWN):
                owner.doubt(asked)
            self._finish(Outcome(error=error))

    def _pause(self) -> None:
        owner = self._owner
        pause_ms = owner.randomness.between(self._pause_ms // 2, self._pause_ms)
        self._pause_ms = min(2 * self._pause_ms, PAUSE_MS_MAX)
        self._hints_left = 2
        owner.scheduler.call_at(owner.clock.monotonic_ms() + pause_ms, self._ask)

    def _succeeded(self, reply: ControllerReply) -> None:
        self._is_answered = True
        if not self._until_visible:
            self._finish(Outcome(reply.response))
            return
        owner = self._owner
        self._forget_waiter = owner.replica.when_at(
            reply.offset, lambda: self._finish(Outcome(reply.response))
        )
        if self._done is not None:
            owner.scheduler.call_at(owner.clock.monotonic_ms() + BEHIND_MS, self._still_behind)

    def _still_behind(self) -> None:
        if self._done is not None:
            self._owner.behind()

    def _out_of_time(self) -> None:
        if self._done is not None and self._asked is not None and not self._is_answered:
            self._owner.doubt(self._asked)
        why = f": {self._last_error}" if self._last_error is not None else ""
        self._finish(Outcome(error=RequestTimedOutError(f"the controller did not answer in time{why}")))

    def _finish(self, outcome: Outcome[Response]) -> None:
        done, self._done = self._done, None
        self._owner.waits_no_more(self)
        self._forget_waiter()
        if done is not None:
            done(outcome)
