"""Notices that the quorum's leader has died, sooner than by a timeout drawn at random (decision 44).

    a follower: the leader is silent for two heartbeats ──► its port of the control plane is tried
        it refuses          nobody listens there: consensus is told, and the voters stand for election in turn
        anything else       it is stopped, slow or cut off: chance decides who stands first, as ever

A guess that is wrong (something in between refuses in the leader's name) costs nothing: nobody stands before
a whole election timeout of silence is over, and a leader that is heard again is followed as before.

What a crash does: nothing is kept here.  All calls come on the control loop.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from distributedlog.broker.cluster.port_watch import LOOK_MS, Tried
from distributedlog.ports.clock import Clock
from distributedlog.ports.scheduler import Scheduler

SILENT_HEARTBEATS: Final = 2


class SilentLeader(NamedTuple):
    leader_id: int
    heard_ms: int
    """When it was last heard."""


class WatchedConsensus(Protocol):
    def find_silent_leader(self, silence_ms: int) -> SilentLeader | None:
        """Returns whom this node follows, if it was not heard for so long."""
        ...

    def leader_refuses(self, leader: SilentLeader) -> None:
        """Takes note that nobody listens where the leader did."""
        ...


class LeaderWatch:
    """Looks while this node follows somebody."""

    def __init__(
        self,
        consensus: WatchedConsensus,
        try_port: Callable[[int, Tried], None],
        *,
        heartbeat_ms: int,
        clock: Clock,
        scheduler: Scheduler,
    ) -> None:
        self._consensus = consensus
        self._try_port = try_port
        self._silence_ms = SILENT_HEARTBEATS * heartbeat_ms
        self._clock = clock
        self._scheduler = scheduler
        self._is_trying = False
        self._refused: SilentLeader | None = None
        """The last one that refused: it is told of once."""
        self._is_following = False
        self._is_due = False
        """The next look is scheduled, also if this node does not follow any more."""
        self._is_stopped = False

    def take_following(self, is_following: bool) -> None:
        """Begins to look when this node follows a leader, and ends when it does not."""
        self._is_following = is_following
        if is_following and not self._is_due:
            self._look_later()

    def stop(self) -> None:
        self._is_stopped = True

    def _look_later(self) -> None:
        self._is_due = True
        self._scheduler.call_at(self._clock.monotonic_ms() + LOOK_MS, self._look)

    def _look(self) -> None:
        self._is_due = False
        if not self._is_following or self._is_stopped:
            return
        leader = self._consensus.find_silent_leader(self._silence_ms)
        if leader is not None and leader != self._refused and not self._is_trying:
            self._is_trying = True
            self._try_port(leader.leader_id, lambda refused: self._take(leader, refused))
        self._look_later()

    def _take(self, leader: SilentLeader, refused: bool) -> None:
        self._is_trying = False
        if refused and not self._is_stopped:
            self._refused = leader
            self._consensus.leader_refuses(leader)
