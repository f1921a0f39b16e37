"""What a follower fetches from one leader, request by request.  Pure.

One `FetchPlanner` stands for all partitions that this broker follows at one leader:

    READY ──► a request names it ──► records came ──► WAITING ──► stored ──► READY
      │                           └─► nothing came: it stays in the session, and no request names it again
      ├─── an error ──► DELAYED ──► its back-off is over ──► READY
      └─── over the follower's throttle ──► THROTTLED ──► the throttle allows more ──► READY

A fetch offset says that everything before it is stored, so a partition is fetched from again only when what
came last is stored as the topic wants it (`flush.on.commit`: synced).  Others do not wait for it.

**Sessions** (KIP-227).  The first request names all partitions and asks for a session; later ones name only
what changed, and forget what is not READY: a leader would send it again from where it was.  Whatever goes
wrong with a session, the next request is a full one again.

**One request for what comes and is stored.**  A response with records is followed by a sync, and only then by
the request that fetches on.  A request of its own for the time between would do no more than forget what is
being stored; with others to fetch from it is sent all the same, but not before STORING_MS are over, which
most syncs are by then.  So a record that is waited for costs one request and not two.

**Two requests.**  While one is delayed at the leader (a long poll), a second one tells it what has been
stored meanwhile, and releases the first.  Not while the first one establishes the session: its id is not
known yet.

**Stale responses.**  A response is good for a partition only if the partition is fetched from now as it was
when that request was sent: `RequestPlan.number` is compared with the number in which the partition was last
named.  Whoever follows in another leader epoch, truncates or appends is named anew.

**Throttled** partitions (KIP-73) are forgotten like others that are not READY.  What a request that was sent
before brings of them is taken all the same: it has come, and counts.

Cost: a request costs what changed since the last one, never all partitions (but for a full one).
"""

import heapq
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import Uuid

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
SESSION_EPOCH_MAX: Final = 2**31 - 1
REQUESTS_MAX: Final = 2
BACKOFF_MS: Final = 100
BACKOFF_MS_MAX: Final = 1_000
STORING_MS: Final = 3
"""How long nothing is fetched from a leader at most because something that came from it is being stored."""

ReplicaKey = tuple[Uuid, int]
"""A topic's id and a partition."""


class FetchPosition(NamedTuple):
    """From where on a partition is fetched, and what the leader is told beside it."""

    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    """The leader epoch of the last record before `offset`; -1: there is none."""
    log_start_offset: int
    high_watermark: int


class RequestPlan(NamedTuple):
    """One fetch request, but for its form."""

    number: int
    session_id: int
    session_epoch: int
    partitions: Mapping[ReplicaKey, FetchPosition]
    """Those that are named in it."""
    forgotten: tuple[ReplicaKey, ...]

    @property
    def is_full(self) -> bool:
        return self.session_epoch == INITIAL_EPOCH


class FetchState(Enum):
    READY = "ready"
    WAITING = "waiting"
    DELAYED = "delayed"
    THROTTLED = "throttled"


NEVER_SENT: Final = 2**63
_WAITS_FOR_TIME: Final = (FetchState.DELAYED, FetchState.THROTTLED)
_TAKES_RESPONSES: Final = (FetchState.READY, FetchState.THROTTLED)


class _Followed:
    """A partition that is followed."""

    __slots__ = ("failures", "position", "retry_ms", "sent_number", "state")

    def __init__(self, position: FetchPosition) -> None:
        self.position = position
        self.state = FetchState.READY
        self.sent_number = NEVER_SENT
        """The first request that named it with its present position."""
        self.failures = 0
        self.retry_ms = 0


class FetchPlanner:
    """The partitions that are followed at one leader, and the fetch session with it."""

    def __init__(self) -> None:
        self._followed: dict[ReplicaKey, _Followed] = {}
        self._changed: dict[ReplicaKey, None] = {}
        """Those that the leader's session does not have as they are."""
        self._delayed: list[tuple[int, ReplicaKey]] = []
        self._session_id = NO_SESSION
        self._session_epoch = INITIAL_EPOCH
        self._in_session: set[ReplicaKey] = set()
        self._last_number = 0
        self._in_flight: dict[int, RequestPlan] = {}
        self._ready_count = 0
        self._put_off_until_ms: int | None = None
        """When the request is sent that would only forget partitions."""

    def __len__(self) -> int:
        return len(self._followed)

    def __contains__(self, key: object) -> bool:
        return key in self._followed

    @property
    def in_flight(self) -> int:
        """How many requests have no response yet."""
        return len(self._in_flight)

    def position(self, key: ReplicaKey) -> FetchPosition | None:
        followed = self._followed.get(key)
        return None if followed is None else followed.position

    def state(self, key: ReplicaKey) -> FetchState | None:
        followed = self._followed.get(key)
        return None if followed is None else followed.state

    # --- what is followed ----------------------------------------------------------------------

    def follow(self, key: ReplicaKey, position: FetchPosition) -> None:
        """Fetches the partition from `position` on: it is new here, or was truncated, or what came is stored,
        or the leader epoch is another one."""
        followed = self._followed.get(key)
        if followed is None:
            followed = self._followed[key] = _Followed(position)
            self._ready_count += 1
        else:
            if position.leader_epoch != followed.position.leader_epoch:
                followed.failures = 0
            self._set_state(followed, FetchState.READY)
            followed.position = position
        followed.sent_number = NEVER_SENT
        self._changed[key] = None

    def unfollow(self, key: ReplicaKey) -> None:
        followed = self._followed.pop(key, None)
        if followed is None:
            return
        self._ready_count -= followed.state is FetchState.READY
        if key in self._in_session:
            self._changed[key] = None
        else:
            self._changed.pop(key, None)

    def hold(self, key: ReplicaKey) -> None:
        """Fetches the partition no more until `follow`: what came is being stored, or the leader's range is
        looked up."""
        followed = self._followed[key]
        followed.failures = 0
        self._set_state(followed, FetchState.WAITING)
        self._changed[key] = None

    def delay(self, key: ReplicaKey, now_ms: int) -> int:
        """The partition could not be fetched: it is left out for a while, longer each time.  Returns when it
        is ready again."""
        followed = self._followed[key]
        pause_ms = min(BACKOFF_MS_MAX, BACKOFF_MS << min(followed.failures, 8))
        followed.failures += 1
        followed.retry_ms = now_ms + pause_ms
        self._set_state(followed, FetchState.DELAYED)
        heapq.heappush(self._delayed, (followed.retry_ms, key))
        self._changed[key] = None
        return followed.retry_ms

    def throttle(self, key: ReplicaKey, until_ms: int) -> None:
        """Leaves a partition that would be fetched out until then."""
        followed = self._followed[key]
        if followed.state is FetchState.READY:
            followed.retry_ms = until_ms
            self._set_state(followed, FetchState.THROTTLED)
            heapq.heappush(self._delayed, (until_ms, key))
            self._changed[key] = None

    def end_throttle(self, key: ReplicaKey) -> None:
        """The partition is not throttled any more, or may be fetched again."""
        followed = self._followed.get(key)
        if followed is not None and followed.state is FetchState.THROTTLED:
            self._make_ready(key, followed)

    def _make_ready(self, key: ReplicaKey, followed: _Followed) -> None:
        self._set_state(followed, FetchState.READY)
        followed.sent_number = NEVER_SENT
        self._changed[key] = None

    def _set_state(self, followed: _Followed, state: FetchState) -> None:
        self._ready_count += (state is FetchState.READY) - (followed.state is FetchState.READY)
        followed.state = state

    # --- requests ------------------------------------------------------------------------------

    def next_request(self, now_ms: int) -> RequestPlan | None:
        """The request to send now; None if there is nothing to ask, or nothing new to tell."""
        self._end_delays(now_ms)
        in_flight = len(self._in_flight)
        if not self._ready_count:
            self._put_off_until_ms = None  # what is stored next is asked for at once
            return None
        if in_flight >= REQUESTS_MAX:
            return None
        if in_flight and (self._session_id == NO_SESSION or not self._changed):
            return None
        if self._session_id == NO_SESSION:
            return self._full_request()
        return None if self._is_put_off(now_ms) else self._incremental_request()

    def _is_put_off(self, now_ms: int) -> bool:
        """Returns whether a request can wait for what is being stored, and notes how long."""
        if self._in_flight:
            return False
        states = set(map(self.state, self._changed))
        if FetchState.WAITING not in states or FetchState.READY in states:
            return False
        if self._put_off_until_ms is None:
            self._put_off_until_ms = now_ms + STORING_MS
        return now_ms < self._put_off_until_ms

    def _full_request(self) -> RequestPlan:
        named = {
            key: followed.position
            for key, followed in self._followed.items()
            if followed.state is FetchState.READY
        }
        self._in_session = set()
        self._changed.clear()
        return self._send(NO_SESSION, INITIAL_EPOCH, named, ())

    def _incremental_request(self) -> RequestPlan:
        named: dict[ReplicaKey, FetchPosition] = {}
        forgotten = []
        for key in self._changed:
            followed = self._followed.get(key)
            if followed is not None and followed.state is FetchState.READY:
                named[key] = followed.position
            elif key in self._in_session:
                forgotten.append(key)
        self._changed.clear()
        epoch = self._session_epoch
        self._session_epoch = 1 if epoch >= SESSION_EPOCH_MAX else epoch + 1
        return self._send(self._session_id, epoch, named, tuple(forgotten))

    def _send(
        self,
        session_id: int,
        session_epoch: int,
        named: Mapping[ReplicaKey, FetchPosition],
        forgotten: tuple[ReplicaKey, ...],
    ) -> RequestPlan:
        self._last_number += 1
        self._put_off_until_ms = None
        plan = RequestPlan(self._last_number, session_id, session_epoch, named, forgotten)
        self._in_session.update(named)
        self._in_session.difference_update(forgotten)
        for key in named:
            self._followed[key].sent_number = plan.number
        self._in_flight[plan.number] = plan
        return plan

    def _end_delays(self, now_ms: int) -> None:
        while self._delayed and self._delayed[0][0] <= now_ms:
            retry_ms, key = heapq.heappop(self._delayed)
            followed = self._followed.get(key)
            is_due = followed is not None and followed.retry_ms == retry_ms
            if followed is not None and is_due and followed.state in _WAITS_FOR_TIME:
                self._make_ready(key, followed)

    def next_retry_ms(self) -> int | None:
        """When the first of those that are delayed is ready again, or a request is put off no longer."""
        retries_ms = [self._delayed[0][0]] if self._delayed else []
        if self._put_off_until_ms is not None:
            retries_ms.append(self._put_off_until_ms)
        return min(retries_ms, default=None)

    # --- responses -----------------------------------------------------------------------------

    def end_request(self, plan: RequestPlan, error: ErrorCode, session_id: int) -> bool:
        """Notes the response to a request; returns whether its partitions are to be looked at.

        After an error of the session the next request is a full one.
        """
        if self._in_flight.pop(plan.number, None) is None:
            return False  # the connection was lost meanwhile, and everything is asked for anew
        if error is not ErrorCode.NONE:
            self._end_session()
            return False
        if plan.is_full:
            if session_id == NO_SESSION:  # the leader has no room for one: every request is full
                self._end_session()
            else:
                self._session_id, self._session_epoch = session_id, 1
        return True

    def lose_connection(self) -> None:
        """No request that was sent will get a response any more."""
        self._in_flight.clear()
        self._end_session()

    def _end_session(self) -> None:
        self._session_id, self._session_epoch = NO_SESSION, INITIAL_EPOCH
        self._put_off_until_ms = None
        self._in_session = set()
        self._changed = dict.fromkeys(self._followed)

    def is_response_current(self, plan: RequestPlan, key: ReplicaKey) -> bool:
        """Returns whether the response to `plan` speaks of the partition as it is fetched from now."""
        followed = self._followed.get(key)
        return (
            followed is not None
            and followed.state in _TAKES_RESPONSES
            and followed.sent_number <= plan.number
        )

    def succeed(self, keys: Iterable[ReplicaKey]) -> None:
        """Fetches of these partitions went well: the next failure is a first one."""
        for key in keys:
            followed = self._followed.get(key)
            if followed is not None:
                followed.failures = 0
