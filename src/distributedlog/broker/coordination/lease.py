"""The lease by which the coordinators of a broker answer reads, and take over from others (decision 14).

    a read     is answered while the lease lasts, and this loop has applied the metadata offset that it names:
               the last change that took a coordinator's partition from this broker
    takeover   a coordinator that has a predecessor begins to answer, also writes, when that one has applied
               the change, as the settled offset says, or when its lease has run out: a session after the
               change was applied here, for a lease is shorter, and none is granted without the change then

A broker tells the controller what it has applied; at once if it lost a leadership by it, because a successor
waits for that.  All calls come on the data loop.
"""

from collections.abc import Callable

from distributedlog.broker.cluster.lease_grant import NO_LEASE, NO_OFFSET, LeaseGrant
from distributedlog.controller.cluster_settings import session_timeout_ms
from distributedlog.controller.image import MetadataImage
from distributedlog.ports.clock import Clock
from distributedlog.ports.scheduler import Scheduler

FIRST_EPOCH = 0
"""The leader epoch of a partition that nobody led before."""


class CoordinatorLease:
    """The lease of one broker, for all of its coordinators."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        *,
        clock: Clock,
        scheduler: Scheduler,
        tell_applied: Callable[[int, bool], None],
        await_settled: Callable[[int], None],
    ) -> None:
        """`image` is the one that this loop is applying, or has.  `tell_applied` passes an offset on to the
        controller, at once if the flag says so; `await_settled` asks it until that offset is settled."""
        self._image = image
        self._clock = clock
        self._scheduler = scheduler
        self._tell_applied = tell_applied
        self._await_settled = await_settled
        self._grant = NO_LEASE
        self._applied_offset = NO_OFFSET
        self._has_lost = False
        self._takeovers: list[Takeover] = []

    def is_valid(self) -> bool:
        """Returns whether nobody else can have begun to coordinate what this broker coordinates."""
        return self._clock.monotonic_ms() < self.end_ms

    @property
    def end_ms(self) -> int:
        """The end of the lease; it is over while this loop has not applied what it names."""
        grant = self._grant
        return grant.end_ms if self._applied_offset >= grant.lease_offset else NO_LEASE.end_ms

    # --- what happens --------------------------------------------------------------------------

    def take(self, grant: LeaseGrant) -> None:
        self._grant = grant
        self._settle()

    def note_lost(self) -> None:
        """Notes that a coordinator is closed, because its partition is led elsewhere."""
        self._has_lost = True

    def note_applied(self, offset: int) -> None:
        """Notes that all partitions have the roles that the image of this offset gives them."""
        is_urgent, self._has_lost = self._has_lost, False
        self._applied_offset = offset
        self._tell_applied(offset, is_urgent)

    # --- taking over ---------------------------------------------------------------------------

    def begin_takeover(self, leader_epoch: int) -> "Takeover":
        image = self._image()
        takeover = Takeover(image.offset, self._clock.monotonic_ms() + session_timeout_ms(image))
        if leader_epoch == FIRST_EPOCH or takeover.offset <= self._grant.settled_offset:
            takeover.settle()
            return takeover
        self._takeovers.append(takeover)
        self._await_settled(takeover.offset)
        self._scheduler.call_at(takeover.deadline_ms, self._settle)
        return takeover

    def _settle(self) -> None:
        """Settles those takeovers whose predecessors answer no more."""
        now_ms, settled_offset = self._clock.monotonic_ms(), self._grant.settled_offset
        waiting, self._takeovers = self._takeovers, []
        for each in waiting:
            if each.offset <= settled_offset or each.deadline_ms <= now_ms:
                each.settle()
            else:
                self._takeovers.append(each)


class Takeover:
    """A partition that this broker leads from the image of an offset on, perhaps with a predecessor."""

    __slots__ = ("_callback", "_is_settled", "deadline_ms", "offset")

    def __init__(self, offset: int, deadline_ms: int) -> None:
        self.offset = offset
        self.deadline_ms = deadline_ms
        """The time when a predecessor's lease has surely run out."""
        self._is_settled = False
        self._callback: Callable[[], None] | None = None

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Calls back once no predecessor answers any more, perhaps at once."""
        if self._is_settled:
            callback()
        else:
            self._callback = callback

    def settle(self) -> None:
        self._is_settled = True
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()
