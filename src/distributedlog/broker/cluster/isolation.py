"""Which partitions of this broker are isolated: another may lead them, and this broker would be the last to
hear of it.

    no lease         no heartbeat that was sent in the last three quarters of a session has been answered
    who is heard     the brokers that have fetched from this one in the last half of a session
    isolated         a partition led here without a lease, while one of those in sync with it, or eligible,
                     is not heard; until one of the two ends

A broker that is fenced while it is cut off loses what it leads, and does not learn of it.  Its clients may
still reach it, and what they wait for never comes: nothing is committed without the whole ISR, and nothing
new is there to be read.  So its isolated partitions refuse both with NOT_LEADER_OR_FOLLOWER, and what
their end is (`replication.partition`), and clients look for the leader elsewhere (decision 35).  The lease is
that of coordinators (decision 14): it ends before a controller fences who is silent, so before another leads.

Who else is heard says nothing: brokers that are cut off together go on to fetch from each other.  And a lease
that has ended proves nothing alone: where all controllers are down, followers fetch on, and all goes on as it
did.

A process that was stopped (SIGSTOP) has requests in its sockets when it goes on: fetches that were sent to
the leader it was, and questions of clients.  So before it says where a log ends, or who leads, it looks
whether it was late to look (`look`); and if so, fetches count no more until half a session has passed, or a
controller has answered.  Lives on the data loop; soft state.
"""

import logging
from collections.abc import Callable
from typing import Final

from distributedlog.broker.cluster.lease_grant import NO_LEASE
from distributedlog.ports.clock import Clock
from distributedlog.ports.scheduler import Scheduler

logger = logging.getLogger(__name__)

CHECK_INTERVAL_MS: Final = 100
STOPPED_MS: Final = 500
"""A look that is so late comes after a stop of the whole process, or of this loop."""
FETCH_PARTS: Final = 2
"""Who has not fetched for this part of a session timeout is not heard."""


class Isolation:
    def __init__(
        self, clock: Clock, scheduler: Scheduler, changed: Callable[[frozenset[int] | None], bool]
    ) -> None:
        """`changed` is told who is heard while there is no lease, again and again, and None when there is
        one; it returns whether a partition is isolated by that."""
        self.is_isolated = False
        """Whether any partition is."""
        self._clock = clock
        self._scheduler = scheduler
        self._changed = changed
        self._began_ms = clock.monotonic_ms()
        self._fetched_ms: dict[int, int] = {}
        self._heard: frozenset[int] | None = None
        self._lease_end_ms = NO_LEASE.end_ms
        self._session_timeout_ms = 0
        self._is_checking = False
        self._next_check_ms = 0
        self._deaf_until_ms = 0
        """Until then fetches may have been sent before a stop."""

    def look(self) -> None:
        """Sees that the process was stopped before the timer does: requests may be served in between."""
        self._notice_stop(self._clock.monotonic_ms())

    def note_fetch(self, broker_id: int) -> None:
        """Notes a fetch by another broker."""
        now_ms = self._clock.monotonic_ms()
        self._notice_stop(now_ms)
        if now_ms < self._deaf_until_ms:
            return
        self._fetched_ms[broker_id] = now_ms
        if self._heard is not None and self.is_isolated and broker_id not in self._heard:
            self._tell(self._find_heard(now_ms))

    def take_lease(self, lease_end_ms: int, session_timeout_ms: int) -> None:
        """Takes the end of the lease that the last answered heartbeat granted."""
        self._lease_end_ms, self._session_timeout_ms = lease_end_ms, session_timeout_ms
        if lease_end_ms > self._clock.monotonic_ms():
            self._deaf_until_ms = 0
            if self._heard is not None:
                self._tell(None)
        if not self._is_checking:
            self._is_checking = True
            self._check()

    def _check(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._notice_stop(now_ms)
        if now_ms >= self._lease_end_ms and now_ms - self._began_ms >= self._silence_ms:
            self._tell(self._find_heard(now_ms))
        self._next_check_ms = max(self._lease_end_ms, now_ms + CHECK_INTERVAL_MS)
        self._scheduler.call_at(self._next_check_ms, self._check)

    def _notice_stop(self, now_ms: int) -> None:
        """A lease that was renewed meanwhile puts the next check off; what was noted then is none of this."""
        due_ms = max(self._next_check_ms, self._lease_end_ms)
        has_just_started = now_ms - self._began_ms < self._silence_ms
        if not self._is_checking or has_just_started or now_ms - due_ms < STOPPED_MS:
            return
        self._next_check_ms = now_ms + CHECK_INTERVAL_MS  # so long the timer has to come
        self._deaf_until_ms = now_ms + self._silence_ms
        self._fetched_ms.clear()
        self._tell(self._find_heard(now_ms))

    @property
    def _silence_ms(self) -> int:
        return self._session_timeout_ms // FETCH_PARTS

    def _find_heard(self, now_ms: int) -> frozenset[int]:
        silence_ms = self._silence_ms
        return frozenset(
            broker_id for broker_id, at_ms in self._fetched_ms.items() if now_ms - at_ms < silence_ms
        )

    def _tell(self, heard: frozenset[int] | None) -> None:
        self._heard = heard
        was_isolated, self.is_isolated = self.is_isolated, self._changed(heard)
        if self.is_isolated and not was_isolated:
            logger.warning(
                "neither a controller nor every replica in sync is heard: clients are sent elsewhere"
            )
        elif was_isolated and not self.is_isolated:
            logger.info("the broker is heard again")
