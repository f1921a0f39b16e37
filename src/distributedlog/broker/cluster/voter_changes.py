"""Changes of who votes, asked of the active controller: one at a time, each to its end or its deadline.

    add      registered? --> observer --> caught up? --> voter --> answered
                               ^ tried again while a change or the term has not committed
    remove   --> stranger --> forgotten --> answered
             |-> ourselves: leadership is handed over first, and whoever takes over is asked again

A node is made a voter only by the storage that it registered with: its directory, and the incarnation that
Raft knows it by (`raft/membership`).  Whatever ends an addition early (the deadline, a lost leadership)
leaves an observer, which counts in no majority: adding it again goes on from there.

| refused with             | when                                                                          |
|--------------------------|-------------------------------------------------------------------------------|
| INCONSISTENT_CLUSTER_ID  | the request means another cluster                                             |
| UNSUPPORTED_VERSION      | the cluster is at a level that keeps no registrations                         |
| INVALID_REQUEST          | to add: no controller has registered under this number; a negative number     |
| INVALID_VOTER_KEY        | it has another data directory than the one that is meant                      |
| DUPLICATE_VOTER          | to add: it votes already, perhaps with a disk that it has lost: remove it     |
| VOTER_NOT_FOUND          | to remove: it is neither a voter nor an observer on its way                   |
| INCONSISTENT_VOTER_SET   | another change is under way; it is the last voter; no majority would be well  |

All of it is soft state of one leader, on the control loop.
"""

from collections.abc import Callable
from typing import Final

from distributedlog.broker.cluster.raft_driver import RaftDriver
from distributedlog.controller.features import LEVEL_CONTROLLERS, METADATA_FEATURE, has_controllers
from distributedlog.controller.image import ControllerRegistration, MetadataImage
from distributedlog.controller.requests import AddVoterRequest, RemoveVoterRequest
from distributedlog.model.errors import (
    DlogError,
    DuplicateVoterError,
    InconsistentClusterIdError,
    InvalidRequestError,
    InvalidVoterKeyError,
    MembershipError,
    NotLeaderError,
    RequestTimedOutError,
    UnsupportedVersionError,
    VoterNotFoundError,
)
from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.ports.clock import Clock
from distributedlog.ports.executor import Done, Outcome
from distributedlog.ports.scheduler import Scheduler
from distributedlog.raft import AddObserver, Change, Promote, Remove
from distributedlog.raft.membership import apply_change

AGAIN_MS: Final = 20
"""The pause before a step that could not be made yet is tried again."""
ANSWER_MS: Final = 1_000
"""The part of a request's time that is kept for saying why it was not done."""

Forget = Callable[[ControllerRegistration, Callable[[], None]], None]
"""Has the registration forgotten, and then calls back, whatever became of it."""


class VoterChanges:
    """Call it while this node is the active controller."""

    def __init__(
        self,
        raft: RaftDriver,
        image: Callable[[], MetadataImage],
        forget: Forget,
        *,
        clock: Clock,
        scheduler: Scheduler,
    ) -> None:
        self._raft = raft
        self._image = image
        self._forget = forget
        self._clock = clock
        self._scheduler = scheduler
        self._under_way: str | None = None

    # --- adding --------------------------------------------------------------------------------

    def add(self, request: AddVoterRequest, timeout_ms: int, done: Done[None]) -> None:
        """Makes a registered controller a voter; `done` gets None, or why it is none (yet)."""
        try:
            registration = self._check_addition(request)
        except DlogError as error:
            done(Outcome(error=error))
            return
        voter_id, incarnation = registration.controller_id, registration.incarnation
        finish = self._begin(f"node {voter_id} is being added", done)
        deadline_ms = self._clock.monotonic_ms() + timeout_ms - min(timeout_ms // 10, ANSWER_MS)

        def promote() -> None:
            self._try(Promote(voter_id), deadline_ms, finish, finish, awaits_commit=request.await_commit)

        if self._raft.status.membership.observers.get(voter_id) == incarnation:
            promote()
            return
        self._try(
            AddObserver(voter_id, incarnation),
            deadline_ms,
            lambda outcome: promote() if outcome.error is None else finish(outcome),
            finish,
        )

    def _check_addition(self, request: AddVoterRequest) -> ControllerRegistration:
        self._check_cluster(request.cluster_id)
        registration = self._image().controllers.get(request.voter_id)
        if registration is None:
            raise InvalidRequestError(
                f"node {request.voter_id} has not registered as a controller: start it with "
                "process.roles=broker,controller and the present voters in controller.quorum.voters"
            )
        _check_directory(registration, request.directory_id)
        incarnation = self._raft.status.membership.voters.get(request.voter_id)
        if incarnation == registration.incarnation:
            raise DuplicateVoterError(f"node {request.voter_id} is a voter already")
        if incarnation is not None:
            raise DuplicateVoterError(
                f"node {request.voter_id} is a voter by a storage that it has lost: remove it, then add it"
            )
        self._check_idle()
        return registration

    # --- removing ------------------------------------------------------------------------------

    def remove(self, request: RemoveVoterRequest, timeout_ms: int, done: Done[None]) -> None:
        """Makes a voter or observer a stranger; `done` gets None, or why it is none.  If that is this node,
        it hands over and answers NotLeaderError: nothing was done, and the next leader is to be asked."""
        try:
            incarnation = self._check_removal(request)
            if request.voter_id == self._raft.node.core.node_id:
                self._hand_over()
        except DlogError as error:
            done(Outcome(error=error))
            return
        registration = self._image().controllers.get(request.voter_id)
        finish = self._begin(f"node {request.voter_id} is being removed", done)

        def removed(outcome: Outcome[object]) -> None:
            if outcome.error is None and registration is not None and registration.incarnation == incarnation:
                self._forget(registration, lambda: finish(outcome))
            else:
                finish(outcome)

        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        self._try(Remove(request.voter_id), deadline_ms, removed, finish)

    def _check_removal(self, request: RemoveVoterRequest) -> int:
        """Returns the incarnation of the member that is to go."""
        self._check_cluster(request.cluster_id)
        if request.voter_id < 0:
            raise InvalidRequestError(f"{request.voter_id} is no number of a node")
        membership = self._raft.status.membership
        incarnation = membership.members.get(request.voter_id)
        if incarnation is None:
            raise VoterNotFoundError(f"node {request.voter_id} is no voter")
        registration = self._image().controllers.get(request.voter_id)
        if registration is not None and registration.incarnation == incarnation:
            _check_directory(registration, request.directory_id)
        self._check_idle()
        apply_change(membership, Remove(request.voter_id))
        return incarnation

    def _hand_over(self) -> None:
        """Raises NotLeaderError, once the voter that has most of the log was asked to take over."""
        core = self._raft.node.core
        if core.transfer_target is None:
            others = [each for each in core.membership.voters if each != core.node_id and core.counts(each)]
            if not others:
                raise MembershipError("there is no voter that could take over")
            best = max(others, key=lambda each: (core.progress[each].match_index, -each))
            self._raft.transfer_leadership(best)
        raise NotLeaderError(
            f"node {core.node_id} hands over before it is removed from the voters", core.transfer_target
        )

    # --- both ----------------------------------------------------------------------------------

    def _check_cluster(self, cluster_id: str | None) -> None:
        image = self._image()
        if cluster_id is not None and cluster_id != image.cluster_id:
            raise InconsistentClusterIdError(
                f"this is the cluster {image.cluster_id}, not {cluster_id[:100]!r}"
            )
        if not has_controllers(image.level):
            raise UnsupportedVersionError(
                f"voters come and go from level {LEVEL_CONTROLLERS} of {METADATA_FEATURE} on; the cluster is "
                f"at {image.level}: raise it once all nodes are of this version"
            )

    def _check_idle(self) -> None:
        if self._under_way is not None:
            raise MembershipError(f"{self._under_way}: one change at a time, try again when it has ended")

    def _begin(self, what: str, done: Done[None]) -> Done[object]:
        """Returns what ends the change; only its first call counts."""
        self._under_way = what

        def finish(outcome: Outcome[object]) -> None:
            if self._under_way is what:
                self._under_way = None
                done(Outcome(error=outcome.error) if outcome.error is not None else Outcome(None))

        return finish

    def _try(
        self,
        change: Change,
        deadline_ms: int,
        made: Done[object],
        failed: Done[object],
        *,
        awaits_commit: bool = True,
    ) -> None:
        """Begins the change as soon as Raft takes it; `made` gets what became of it."""
        try:
            self._raft.change_membership(change, made if awaits_commit else _ignore)
        except MembershipError as refusal:
            now_ms = self._clock.monotonic_ms()
            if not isinstance(change, Promote) and not self._is_unsettled():
                failed(Outcome(error=refusal))
            elif now_ms >= deadline_ms:
                failed(Outcome(error=RequestTimedOutError(f"it was not done in time: {refusal}")))
            else:
                self._scheduler.call_at(
                    min(now_ms + AGAIN_MS, deadline_ms),
                    lambda: self._try(change, deadline_ms, made, failed, awaits_commit=awaits_commit),
                )
        except DlogError as error:
            failed(Outcome(error=error))
        else:
            if not awaits_commit:
                made(Outcome(None))

    def _is_unsettled(self) -> bool:
        """Whether Raft may take later what it refuses now: something has to commit, or to be heard, first."""
        core = self._raft.node.core
        is_new = any(each.incarnation is None for each in core.progress.values())
        return is_new or core.commit_index < max(core.term_start_index, core.memberships.index)


def _check_directory(registration: ControllerRegistration, directory_id: Uuid) -> None:
    if directory_id not in (ZERO_UUID, registration.directory_id):
        raise InvalidVoterKeyError(
            f"node {registration.controller_id} has the directory {registration.directory_id}, "
            f"not {directory_id}"
        )


def _ignore(_: Outcome[object]) -> None:
    """Does nothing: nobody waits for the commit."""
