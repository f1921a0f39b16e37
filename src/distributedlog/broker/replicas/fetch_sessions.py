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

    ACTIVE ──► read to its end, and all is sent ──► IDLE ──► a signal, or named by a request ──► ACTIVE

Only active partitions are read, in the session's order: an idle one has nothing to say until its partition
signals something (`idle_partitions`), so that the response is the one that reading all would give.  A session
belongs to one follower, or to a consumer, and to one version of Fetch; with another version all are read.

A follower's session pauses for PAUSE_MS after a response with records: what is appended meanwhile, and nobody
waits for, is sent when that is over, in one response and for one sync (decision 31).  Somebody waits for a
partition's records until they are committed.  Nobody waits for a follower to hear of its high watermark: that
is sent with the next records, or when the pause is over, and the fetch that it would end is there for them.

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

from distributedlog.broker.replicas.idle_partitions import IdlePartition, IdlePartitions, PartitionKey
from distributedlog.model.config import INT32_MAX, MINUTE_MS
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TOPIC_NAME_LENGTH_MAX
from distributedlog.ports.randomness import Randomness

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EVICTION_MS: Final = 2 * MINUTE_MS
SLOTS_MAX: Final = 1_000
PARTITIONS_MAX: Final = 500_000
NOT_SENT: Final = -1
CONSUMER_ID: Final = -1
PAUSE_MS: Final = 25
"""How long a follower that was just sent records waits for others that nobody waits for."""


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
    idle: IdlePartition | None = None
    """The partition, if it was read to its end and everything is committed."""
    is_awaited: bool = False
    """Somebody waits until the leader's records are committed."""


class SessionOutcome(NamedTuple):
    """The head of the response, and which partitions to put into it, in this order."""

    error: ErrorCode
    session_id: int
    keys: list[PartitionKey]


class DelayedReading(NamedTuple):
    """What a request that is delayed has read, as far as its session does not have it as idle."""

    active: list[PartitionKey]
    has_news: bool
    """Some partition has something to say, though no records."""


class SessionTraits(NamedTuple):
    """Whose a session is, and in which form its topics are named."""

    uses_topic_ids: bool
    follower_id: int = CONSUMER_ID
    version: int = 0


def next_epoch(epoch: int) -> int:
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch >= INT32_MAX else epoch + 1


class CachedPartition:
    """A partition of a session: what is wanted of it, and what was last sent."""

    __slots__ = ("high_watermark", "idle", "log_start_offset", "rank", "wanted")

    def __init__(self, wanted: FetchSpec, rank: int) -> None:
        self.wanted = wanted
        self.rank = rank
        """Its place in the order of reading."""
        self.high_watermark = NOT_SENT
        self.log_start_offset = NOT_SENT
        self.idle: IdlePartition | None = None

    def must_send(self, summary: PartitionSummary) -> bool:
        return (
            summary.records_bytes > 0
            or summary.high_watermark != self.high_watermark
            or summary.log_start_offset != self.log_start_offset
            or summary.is_pressing
            or summary.error != ErrorCode.NONE
        )

    def update_sent(self, summary: PartitionSummary) -> bool:
        """Notes what is sent; whether it has to be sent at all."""
        must_send = self.must_send(summary)
        self.log_start_offset = summary.log_start_offset
        # After an error the partition is sent again, also if nothing but the error has gone.
        self.high_watermark = NOT_SENT if summary.error != ErrorCode.NONE else summary.high_watermark
        return must_send


class FetchSession:
    __slots__ = (
        "_active",
        "_idle",
        "_last_rank",
        "created_ms",
        "epoch",
        "follower_id",
        "is_settled",
        "on_wake",
        "partitions",
        "paused_until_ms",
        "read_ms",
        "release",
        "session_id",
        "used_ms",
        "uses_topic_ids",
        "version",
    )

    def __init__(
        self,
        session_id: int,
        *,
        follower_id: int,
        uses_topic_ids: bool,
        version: int,
        now_ms: int,
        idle: IdlePartitions | None,
    ) -> None:
        self.session_id = session_id
        self.follower_id = follower_id
        self.uses_topic_ids = uses_topic_ids
        self.version = version
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.read_ms = now_ms
        """When its partitions were last read: for idle ones as good as a fetch from where they were."""
        self.is_settled = False
        """It was used when it had been there for a while: a larger one may take its place."""
        self.partitions: dict[PartitionKey, CachedPartition] = {}
        self.release: Callable[[], None] | None = None
        """Ends the waiting of the session's last request, if it waits."""
        self.on_wake: Callable[[IdlePartition], None] | None = None
        """Has the session's last request, if it waits, wait for this partition too."""
        self.paused_until_ms = now_ms
        self._active: set[PartitionKey] = set()
        self._last_rank = 0
        self._idle = idle
        """None: no partition is ever idle here."""

    @property
    def is_follower(self) -> bool:
        return self.follower_id >= 0

    # --- its partitions ------------------------------------------------------------------------

    def update(self, partitions: Mapping[PartitionKey, FetchSpec], forgotten: Iterable[PartitionKey]) -> None:
        for key, wanted in partitions.items():
            cached = self.partitions.get(key)
            if cached is None:
                self._last_rank += 1
                self.partitions[key] = CachedPartition(wanted, self._last_rank)
                self._active.add(key)
            else:
                self._activate(key, cached)
                cached.wanted = wanted
        for key in forgotten:
            cached = self.partitions.get(key)
            if cached is not None:
                self._activate(key, cached)
                del self.partitions[key]
                self._active.remove(key)

    def list_wanted(self, now_ms: int) -> dict[PartitionKey, FetchSpec]:
        """Returns what is to be read now, in this order."""
        self.read_ms = now_ms
        partitions = self.partitions
        return {
            key: partitions[key].wanted
            for key in sorted(self._active, key=lambda each: partitions[each].rank)
        }

    # --- idle and active -----------------------------------------------------------------------

    def wake(self, key: PartitionKey) -> None:
        cached = self.partitions[key]
        idle = cached.idle
        assert idle is not None
        self._end_idleness(key, cached, idle)
        if self.on_wake is not None:
            self.on_wake(idle)

    def _activate(self, key: PartitionKey, cached: CachedPartition) -> None:
        idle = cached.idle
        if idle is not None:
            assert self._idle is not None
            self._idle.remove(idle.partition, self)
            self._end_idleness(key, cached, idle)

    def activate_all(self) -> None:
        for key, cached in self.partitions.items():
            self._activate(key, cached)

    def _end_idleness(self, key: PartitionKey, cached: CachedPartition, idle: IdlePartition) -> None:
        cached.idle = None
        self._active.add(key)
        if self.follower_id >= 0:
            idle.partition.note_idle_fetch(self.follower_id, self.read_ms)

    def _set_idle(self, key: PartitionKey, cached: CachedPartition, idle: IdlePartition) -> None:
        if self._idle is not None and cached.idle is None:
            cached.idle = idle
            self._active.discard(key)
            self._idle.add(idle.partition, self, key)

    def close(self) -> None:
        """The session is over.  Whoever still waits in it is answered: no signal reaches it any more."""
        self.activate_all()
        self._idle = None
        self.end_delay()

    def end_delay(self) -> None:
        """Ends the waiting of the last request: it is answered."""
        release, self.release, self.on_wake = self.release, None, None
        if release is not None:
            release()

    # --- what is sent --------------------------------------------------------------------------

    def start(self, summaries: Iterable[tuple[PartitionKey, PartitionSummary]]) -> None:
        """Notes what is sent with the response that tells of the session; its order is the request's."""
        for key, summary in summaries:
            cached = self.partitions.get(key)
            if cached is not None:
                cached.update_sent(summary)
                if summary.idle is not None:
                    self._set_idle(key, cached, summary.idle)

    def select(self, summaries: Iterable[tuple[PartitionKey, PartitionSummary]]) -> list[PartitionKey]:
        selected: list[PartitionKey] = []
        for key, summary in summaries:
            cached = self.partitions.get(key)
            if cached is None:
                continue
            if cached.update_sent(summary):
                selected.append(key)
                if summary.records_bytes > 0:
                    self.paused_until_ms = self.read_ms + PAUSE_MS
                    self._last_rank += 1
                    cached.rank = self._last_rank
            if summary.idle is not None:
                self._set_idle(key, cached, summary.idle)
        return selected

    def rest(self, summaries: Iterable[tuple[PartitionKey, PartitionSummary]]) -> DelayedReading:
        """Makes those idle that have nothing to say."""
        active: list[PartitionKey] = []
        has_news = False
        for key, summary in summaries:
            cached = self.partitions.get(key)
            must_send = cached is not None and cached.must_send(summary)
            if cached is None or must_send or summary.idle is None or self._idle is None:
                active.append(key)
                has_news = has_news or must_send
            else:
                self._set_idle(key, cached, summary.idle)
        return DelayedReading(active, has_news)

    def can_pause(self, read: Iterable[tuple[PartitionKey, PartitionSummary]]) -> bool:
        for key, summary in read:
            cached = self.partitions.get(key)
            if cached is None or cached.log_start_offset != summary.log_start_offset:
                return False
            if summary.is_awaited and summary.records_bytes > 0:
                return False
        return True

    @property
    def worth(self) -> tuple[bool, int]:
        return self.is_follower, len(self.partitions)


class FetchContext:
    """One fetch, from request to summary.  Read `partitions`, unless there is an `error`; then `finish`.

    If it is delayed before that, `rest`; later read what `list_again` names.
    """

    __slots__ = ("_cache", "_now_ms", "_session", "_traits", "error", "partitions")

    def __init__(
        self,
        partitions: Mapping[PartitionKey, FetchSpec],
        *,
        error: ErrorCode = ErrorCode.NONE,
        session: FetchSession | None = None,
        cache: "FetchSessionCache | None" = None,
        traits: "SessionTraits | None" = None,
        now_ms: int = 0,
    ) -> None:
        self.partitions = partitions
        """The partitions, in the order in which they are to be read."""
        self.error = error
        self._session = (session, session.epoch) if session is not None else None
        self._cache = cache
        self._traits = traits
        self._now_ms = now_ms

    @property
    def is_empty(self) -> bool:
        """Nothing is wanted, now or later."""
        return self._session is None and not self.partitions

    @property
    def is_in_session(self) -> bool:
        return self._session is not None

    def rest(self, summaries: Iterable[tuple[PartitionKey, PartitionSummary]]) -> DelayedReading:
        """The request is to wait: what was read and has nothing to say is not read again before a signal."""
        assert self._session is not None
        return self._session[0].rest(summaries)

    def find_pause(self, now_ms: int) -> int | None:
        """Returns until when a follower is sent nothing that nobody waits for; None if it is sent all now."""
        session = self._session[0] if self._session is not None else None
        if session is None or not session.is_follower or now_ms >= session.paused_until_ms:
            return None
        return session.paused_until_ms

    def can_pause(self, read: Iterable[tuple[PartitionKey, PartitionSummary]]) -> bool:
        """Returns whether a follower's response may be sent later: nobody waits for any of it."""
        return self._session is not None and self._session[0].can_pause(read)

    def delay(self, release: Callable[[], None], on_wake: Callable[[IdlePartition], None]) -> None:
        """The request waits; a follower's next one of its session calls `release` before it begins."""
        if self._session is not None:
            self._session[0].release = release
            self._session[0].on_wake = on_wake

    def list_again(self, now_ms: int) -> Mapping[PartitionKey, FetchSpec]:
        """Returns what is to be read when the request waits no longer."""
        return self.partitions if self._session is None else self._session[0].list_wanted(now_ms)

    def finish(self, summaries: Iterable[tuple[PartitionKey, PartitionSummary]]) -> SessionOutcome:
        """Returns what to put into the response, given what was read, in the order of `partitions`."""
        if self.error != ErrorCode.NONE:
            return SessionOutcome(self.error, NO_SESSION, [])
        if self._session is not None:
            session, epoch = self._session
            if session.epoch != epoch:  # a later request has overtaken this one
                return SessionOutcome(ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.session_id, [])
            session.release = session.on_wake = None
            return SessionOutcome(ErrorCode.NONE, session.session_id, session.select(summaries))
        summaries = list(summaries)
        session_id = NO_SESSION
        if self._cache is not None:
            assert self._traits is not None
            session_id = self._cache.create(self.partitions, summaries, self._traits, self._now_ms)
        return SessionOutcome(ErrorCode.NONE, session_id, [key for key, _ in summaries])


class FetchSessionCache:
    def __init__(
        self,
        slots_max: int = SLOTS_MAX,
        *,
        randomness: Randomness,
        eviction_ms: int = EVICTION_MS,
        partitions_max: int = PARTITIONS_MAX,
        idle: IdlePartitions | None = None,
    ) -> None:
        """`idle` hears of all signals of partitions; without it every partition is read each time."""
        self._slots_max = slots_max
        self._partitions_max = partitions_max
        self._randomness = randomness
        self._eviction_ms = eviction_ms
        self._idle = idle
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
        traits: SessionTraits,
        now_ms: int,
    ) -> FetchContext:
        """The head and the partitions of a request; what it wants read, or the error it is answered with."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._end(session_id, traits)
            cache = self if epoch == INITIAL_EPOCH else None
            return FetchContext(partitions, cache=cache, traits=traits, now_ms=now_ms)
        session = self._find(session_id, traits)
        if session is None:
            return FetchContext({}, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return FetchContext({}, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != traits.uses_topic_ids:
            return FetchContext({}, error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if not self._update_within_bounds(session, partitions, forgotten):
            self._end(session_id, traits)
            return FetchContext({}, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            self._end(session_id, traits)
            return FetchContext(partitions)
        self._touch(session, now_ms)
        session.epoch = next_epoch(session.epoch)
        session.end_delay()  # of a request that this one overtakes
        if session.version != traits.version:
            session.version = traits.version
            session.activate_all()
        return FetchContext(session.list_wanted(now_ms), session=session)

    def _find(self, session_id: int, traits: SessionTraits) -> FetchSession | None:
        """Finds the session, if it is this reader's."""
        session = self._sessions.get(session_id)
        return session if session is not None and session.follower_id == traits.follower_id else None

    def _end(self, session_id: int, traits: SessionTraits) -> None:
        if self._find(session_id, traits) is not None:
            self._sessions.pop(session_id).close()

    def release_delayed(self, session_id: int) -> None:
        """Ends the waiting of the session's last request, which is answered with what there is."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.end_delay()

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
        traits: SessionTraits,
        now_ms: int,
    ) -> int:
        """Makes a session of these partitions, of which these are sent; 0 if there is no slot for it."""
        too_many = self.partition_count + len(partitions) > self._partitions_max
        if too_many or not _have_valid_names(partitions):
            return NO_SESSION
        if not self._try_evict(traits.follower_id >= 0, len(partitions), now_ms):
            return NO_SESSION
        session = FetchSession(
            self._new_id(),
            follower_id=traits.follower_id,
            uses_topic_ids=traits.uses_topic_ids,
            version=traits.version,
            now_ms=now_ms,
            idle=self._idle,
        )
        session.update(partitions, ())
        session.start(summaries)
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
        self.evictions += 1
        self._sessions.pop(victim.session_id).close()
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
