"""Fetch sessions (KIP-227): a client says once which partitions it reads, and then only what changes.

    request (id, epoch)    is                                      answered with
    (0, -1)                a fetch without a session               all its partitions, id 0
    (0, 0)                 a full fetch that wants a session       all its partitions, a new id or 0
    (id, 0) or (id, -1)    as above; the old session ends          as above
    (id, n)                what has changed in the session         those partitions that have something to say

An incremental fetch must name the epoch that follows the last one; each response moves it on by one, from 1
to the largest int32 and then to 1 again.  So a request that is repeated or lost is noticed, and the client
starts over: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH.  A session speaks of topics by id or by
name, and not of both: FETCH_SESSION_TOPIC_ID_ERROR.

A partition has something to say if it has records, an error, or a high watermark or log start other than the
session last sent; or if it must send the reader elsewhere.  One that returned records goes to the end of the
session's order, so that none starves when the response is full.

There is a bounded number of sessions, and of partitions in all of them together: beyond that a client gets
no session, or loses the one that grew, and names all its partitions each time.  So does who names what is too
long to be a topic's name: it would be kept as long as the session.  A new session takes the place
of one that was unused for `eviction_ms`; else of one that is worth less: a consumer's for a follower, a
smaller one that is older than `eviction_ms`.

Pure but for the choice of ids, and soft: sessions are lost with the process, and clients start over.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from distributedlog.model.config import INT32_MAX, MINUTE_MS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TOPIC_NAME_LENGTH_MAX, Uuid
from distributedlog.ports.randomness import Randomness

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EVICTION_MS: Final = 2 * MINUTE_MS
SLOTS_MAX: Final = 1_000
PARTITIONS_MAX: Final = 500_000
NOT_SENT: Final = -1

PartitionKey = tuple[str | Uuid, int]
"""A topic's name or id, as the request has it, and a partition."""


class FetchSpec(NamedTuple):
    """What a client wants of one partition."""

    offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


class PartitionSummary(NamedTuple):
    """What there is to say of one partition, as far as it matters here."""

    records_bytes: int
    high_watermark: int
    log_start_offset: int
    error: ErrorCode = ErrorCode.NONE
    is_pressing: bool = False
    """It names a preferred replica or a diverging epoch: sent whatever was sent before."""


class SessionOutcome(NamedTuple):
    """The head of the response, and which partitions to put into it, in this order."""

    error: ErrorCode
    session_id: int
    keys: list[PartitionKey]


def next_epoch(epoch: int) -> int:
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch >= INT32_MAX else epoch + 1


class CachedPartition:
    """A partition of a session: what is wanted of it, and what was last sent."""

    __slots__ = ("high_watermark", "log_start_offset", "wanted")

    def __init__(self, wanted: FetchSpec) -> None:
        self.wanted = wanted
        self.high_watermark = NOT_SENT
        self.log_start_offset = NOT_SENT

    def update_sent(self, summary: PartitionSummary) -> bool:
        """Notes what is sent; whether it has to be sent at all."""
        must_send = (
            summary.records_bytes > 0
            or summary.high_watermark != self.high_watermark
            or summary.log_start_offset != self.log_start_offset
            or summary.is_pressing
            or summary.error != ErrorCode.NONE
        )
        self.log_start_offset = summary.log_start_offset
        # After an error the partition is sent again, also if nothing but the error has gone.
        self.high_watermark = NOT_SENT if summary.error != ErrorCode.NONE else summary.high_watermark
        return must_send


class FetchSession:
    __slots__ = (
        "created_ms",
        "epoch",
        "is_follower",
        "is_settled",
        "partitions",
        "release",
        "session_id",
        "used_ms",
        "uses_topic_ids",
    )

    def __init__(self, session_id: int, *, is_follower: bool, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.is_follower = is_follower
        self.uses_topic_ids = uses_topic_ids
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.is_settled = False
        """It was used when it had been there for a while: a larger one may take its place."""
        self.partitions: OrderedDict[PartitionKey, CachedPartition] = OrderedDict()
        self.release: Callable[[], None] | None = None
        """Ends the waiting of the session's last request, if it waits."""

    def update(self, partitions: Mapping[PartitionKey, FetchSpec], forgotten: Iterable[PartitionKey]) -> None:
        for key, wanted in partitions.items():
            cached = self.partitions.get(key)
            if cached is None:
                self.partitions[key] = CachedPartition(wanted)
            else:
                cached.wanted = wanted
        for key in forgotten:
            self.partitions.pop(key, None)

    def select(self, summaries: Iterable[tuple[PartitionKey, PartitionSummary]]) -> list[PartitionKey]:
        selected: list[PartitionKey] = []
        for key, summary in summaries:
            cached = self.partitions.get(key)
            if cached is None or not cached.update_sent(summary):
                continue
            selected.append(key)
            if summary.records_bytes > 0:
                self.partitions.move_to_end(key)
        return selected

    @property
    def worth(self) -> tuple[bool, int]:
        return self.is_follower, len(self.partitions)


class FetchContext:
    """One fetch, from request to summary.  Read `partitions`, unless there is an `error`; then `finish`."""

    __slots__ = ("_cache", "_is_full", "_now_ms", "_session", "_traits", "error", "partitions")

    def __init__(
        self,
        partitions: Mapping[PartitionKey, FetchSpec],
        *,
        error: ErrorCode = ErrorCode.NONE,
        session: FetchSession | None = None,
        cache: "FetchSessionCache | None" = None,
        is_follower: bool = False,
        uses_topic_ids: bool = False,
        now_ms: int = 0,
    ) -> None:
        self.partitions = partitions
        """The partitions, in the order in which they are to be read."""
        self.error = error
        self._session = (session, session.epoch) if session is not None else None
        self._cache = cache
        self._traits = is_follower, uses_topic_ids
        self._now_ms = now_ms
        self._is_full = session is None

    def delay(self, release: Callable[[], None]) -> None:
        """The request waits; the next one of its session calls `release` before it begins."""
        if self._session is not None:
            self._session[0].release = release

    def finish(self, summaries: Iterable[tuple[PartitionKey, PartitionSummary]]) -> SessionOutcome:
        """Returns what to put into the response, given what was read, in the order of `partitions`."""
        if self.error != ErrorCode.NONE:
            return SessionOutcome(self.error, NO_SESSION, [])
        if self._session is not None:
            session, epoch = self._session
            session.release = None
            if session.epoch != epoch:  # a later request has overtaken this one
                return SessionOutcome(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.session_id, [])
            return SessionOutcome(ErrorCode.NONE, session.session_id, session.select(summaries))
        summaries = list(summaries)
        session_id = NO_SESSION
        if self._cache is not None:
            is_follower, uses_topic_ids = self._traits
            session_id = self._cache.create(
                self.partitions,
                summaries,
                is_follower=is_follower,
                uses_topic_ids=uses_topic_ids,
                now_ms=self._now_ms,
            )
        return SessionOutcome(ErrorCode.NONE, session_id, [key for key, _ in summaries])


class FetchSessionCache:
    def __init__(
        self,
        slots_max: int = SLOTS_MAX,
        *,
        randomness: Randomness,
        eviction_ms: int = EVICTION_MS,
        partitions_max: int = PARTITIONS_MAX,
    ) -> None:
        self._slots_max = slots_max
        self._partitions_max = partitions_max
        self._randomness = randomness
        self._eviction_ms = eviction_ms
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # the least recently used first
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    @property
    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def begin(
        self,
        session_id: int,
        epoch: int,
        *,
        partitions: Mapping[PartitionKey, FetchSpec],
        forgotten: Iterable[PartitionKey] = (),
        uses_topic_ids: bool,
        is_follower: bool,
        now_ms: int,
    ) -> FetchContext:
        """The head and the partitions of a request; what it wants read, or the error it is answered with."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(session_id, None)
            return FetchContext(
                partitions,
                cache=self if epoch == INITIAL_EPOCH else None,
                is_follower=is_follower,
                uses_topic_ids=uses_topic_ids,
                now_ms=now_ms,
            )
        session = self._sessions.get(session_id)
        if session is None:
            return FetchContext({}, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return FetchContext({}, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return FetchContext({}, error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if not self._update_within_bounds(session, partitions, forgotten):
            del self._sessions[session_id]
            return FetchContext({}, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            del self._sessions[session_id]
            return FetchContext(partitions)
        self._touch(session, now_ms)
        session.epoch = next_epoch(session.epoch)
        wanted = {key: cached.wanted for key, cached in session.partitions.items()}
        return FetchContext(wanted, session=session)

    def release_delayed(self, session_id: int) -> None:
        """Ends the waiting of the session's last request, which is answered with what there is."""
        session = self._sessions.get(session_id)
        if session is not None and session.release is not None:
            release, session.release = session.release, None
            release()

    def _update_within_bounds(
        self,
        session: FetchSession,
        partitions: Mapping[PartitionKey, FetchSpec],
        forgotten: Iterable[PartitionKey],
    ) -> bool:
        """Updates the session; False if it may not have these partitions, and must end."""
        if not _have_valid_names(partitions):
            return False
        size_before = len(session.partitions)
        session.update(partitions, forgotten)
        return len(session.partitions) <= size_before or self.partition_count <= self._partitions_max

    def create(
        self,
        partitions: Mapping[PartitionKey, FetchSpec],
        summaries: Iterable[tuple[PartitionKey, PartitionSummary]],
        *,
        is_follower: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> int:
        """Makes a session of these partitions, of which these are sent; 0 if there is no slot for it."""
        too_many = self.partition_count + len(partitions) > self._partitions_max
        if too_many or not _have_valid_names(partitions):
            return NO_SESSION
        if not self._try_evict(is_follower, len(partitions), now_ms):
            return NO_SESSION
        session = FetchSession(
            self._new_id(), is_follower=is_follower, uses_topic_ids=uses_topic_ids, now_ms=now_ms
        )
        session.update(partitions, ())
        for key, summary in summaries:
            if key in session.partitions:
                session.partitions[key].update_sent(summary)
        self._sessions[session.session_id] = session
        self._touch(session, now_ms)
        return session.session_id

    def _new_id(self) -> int:
        while True:
            session_id = self._randomness.between(1, INT32_MAX)
            if session_id not in self._sessions:
                return session_id

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        session.used_ms = now_ms
        session.is_settled = now_ms - session.created_ms > self._eviction_ms
        self._sessions.move_to_end(session.session_id)

    def _try_evict(self, is_follower: bool, size: int, now_ms: int) -> bool:
        """Evicts a session for a new one, if there is no slot left; False if none may be evicted."""
        if len(self._sessions) < self._slots_max:
            return True
        stalest = next(iter(self._sessions.values()), None)
        if stalest is None:
            return False
        victim: FetchSession | None = stalest
        if now_ms - stalest.used_ms <= self._eviction_ms:
            victim = self._least_worthy(is_follower)
            if victim is None or (is_follower, size) < victim.worth:
                return False
        assert victim is not None
        del self._sessions[victim.session_id]
        self.evictions += 1
        return True

    def _least_worthy(self, for_follower: bool) -> FetchSession | None:
        """Finds one of those that may be evicted for a follower's session, or for a consumer's."""
        candidates = (
            session
            for session in self._sessions.values()
            if session.is_settled or (for_follower and not session.is_follower)
        )
        return min(candidates, key=lambda session: session.worth, default=None)


def _have_valid_names(keys: Iterable[PartitionKey]) -> bool:
    """No topic is named with more than a topic's name can have."""
    return all(not isinstance(topic, str) or len(topic) <= TOPIC_NAME_LENGTH_MAX for topic, _ in keys)
