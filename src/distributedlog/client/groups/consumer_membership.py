"""Where a member of a consumer group (KIP-848) stands, and what each answer of the coordinator means.  Pure.

The member and its coordinator speak by one request, the heartbeat.  It says what the member subscribes to and
what it holds; the answer says which epoch the member is in and, if that has changed, what it is to have.
States and events are in `TRANSITIONS`:

| state         | what it is                                                      | it goes on when      |
|---------------|-----------------------------------------------------------------|----------------------|
| UNSUBSCRIBED  | no member yet                                                   | the program polls    |
| REJOINING     | the program is told what is lost, if anything is                | it was told          |
| JOINING       | the next heartbeat is in epoch 0                                | it is answered       |
| STABLE        | it has what it is to have                                       | the target changes   |
| RECONCILING   | the target is another one                                       | the program polls    |
| TELLING       | the program gives up and gets what changed                      | it was told          |
| ACKNOWLEDGING | the next heartbeat says what it holds now                       | it is answered       |
| FENCED        | the group went on without it: all is lost                       | the program polls    |
| STALE         | it was not polled for `max_poll_interval_ms` and left           | the program polls    |
| FATAL         | refused: the program is told why, and tries again if it polls   | the program polls    |
| LEFT          | the end                                                         |                      |

| the answer                             | then                                                              |
|----------------------------------------|-------------------------------------------------------------------|
| FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID | FENCED: it joins again, with its id, in epoch 0                   |
| UNRELEASED_INSTANCE_ID                 | FATAL: another process still is the static member                 |
| FENCED_INSTANCE_ID                     | FATAL: another process is the static member now                   |
| none, or one worth another try         | the same again, in full: the coordinator may have missed something|
| another                                | FATAL                                                             |

**Invariants.**  `owned` is what the program was told, and nothing leaves it without a `Change`.  A partition
is given up, with the program's commits, before a heartbeat says so: nobody else is given it before that.
Topics go by their ids: a topic that was removed and made again under its name is another one.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from distributedlog.client.errors import as_error_code, check_response
from distributedlog.client.groups.membership import Change, GroupOptions
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError, UnsupportedVersionError
from distributedlog.model.ids import TopicPartition, Uuid
from distributedlog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
UNCHANGED: Final = -1
PATTERNS_SINCE: Final = 1
"""The first version of the heartbeat that has patterns of topics."""
INTERVAL_MS_DEFAULT: Final = 5_000

TopicIdPartition = tuple[Uuid, int]


class MemberState(StrEnum):
    UNSUBSCRIBED = "unsubscribed"
    REJOINING = "rejoining"
    JOINING = "joining"
    STABLE = "stable"
    RECONCILING = "reconciling"
    TELLING = "telling"
    ACKNOWLEDGING = "acknowledging"
    FENCED = "fenced"
    STALE = "stale"
    FATAL = "fatal"
    LEFT = "left"


class MemberEvent(StrEnum):
    PREPARED = "the program polls, and is about to be told what changes"
    TOLD = "the program was told"
    SAME = "the coordinator answered, and the target is what the member has"
    DIFFERS = "the coordinator answered, and the target is another"
    FENCED = "the coordinator does not know it in this epoch"
    POLL_EXPIRED = "the program does not poll"
    REFUSED = "the coordinator refused it for good"
    LEFT = "the consumer is closed"


_S, _E = MemberState, MemberEvent
BEATING: Final = (_S.JOINING, _S.STABLE, _S.RECONCILING, _S.TELLING, _S.ACKNOWLEDGING)
"""The states in which heartbeats go out."""
_OUTSIDE: Final = (_S.UNSUBSCRIBED, _S.FENCED, _S.STALE, _S.FATAL)

TRANSITIONS: Final[Mapping[tuple[MemberState, MemberEvent], MemberState]] = {
    **{(each, _E.PREPARED): _S.REJOINING for each in (*_OUTSIDE, _S.REJOINING)},
    (_S.REJOINING, _E.TOLD): _S.JOINING,
    (_S.RECONCILING, _E.PREPARED): _S.TELLING,
    (_S.TELLING, _E.PREPARED): _S.TELLING,
    (_S.TELLING, _E.TOLD): _S.ACKNOWLEDGING,
    # It was fenced while the program was told of something else: that all is lost is told next.
    **{(each, _E.TOLD): each for each in (_S.FENCED, _S.STALE, _S.FATAL)},
    **{(each, _E.SAME): _S.STABLE for each in BEATING if each is not _S.TELLING},
    **{(each, _E.DIFFERS): _S.RECONCILING for each in BEATING if each is not _S.TELLING},
    (_S.TELLING, _E.SAME): _S.TELLING,
    (_S.TELLING, _E.DIFFERS): _S.TELLING,
    **{(each, _E.FENCED): _S.FENCED for each in BEATING},
    **{(each, _E.POLL_EXPIRED): _S.STALE for each in BEATING},
    **{(each, _E.REFUSED): _S.FATAL for each in BEATING},
    **{(each, _E.LEFT): _S.LEFT for each in MemberState},
}
"""A pair that is not here cannot happen: a KeyError is a defect."""

FENCING: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


class Heartbeat(NamedTuple):
    """A request, and what its answer is the answer to."""

    request: ConsumerGroupHeartbeatRequest
    topics: frozenset[str]
    pattern: str | None
    held: frozenset[TopicIdPartition]


class ConsumerMembership:
    def __init__(
        self,
        options: GroupOptions,
        member_id: str,
        topics: Collection[str] = (),
        *,
        pattern: str | None = None,
    ) -> None:
        self.options = options
        self.member_id = member_id
        self.state = MemberState.UNSUBSCRIBED
        self.epoch = JOIN_EPOCH
        self.topics = frozenset(topics)
        self.pattern = pattern
        self.heartbeat_interval_ms = INTERVAL_MS_DEFAULT
        self.failure: DlogError | None = None
        """Why it was refused, until the program was told."""
        self._target: frozenset[TopicIdPartition] = frozenset()
        self._owned: frozenset[TopicIdPartition] = frozenset()
        self._held: frozenset[TopicIdPartition] = frozenset()
        """What the member can have been reading since it last told the coordinator."""
        self._names: dict[Uuid, str] = {}
        self._has_told_pattern = False
        self._last: Heartbeat | None = None
        """The last one that was answered; None: the next one says everything."""

    # --- what others ask -----------------------------------------------------------------------

    @property
    def identity(self) -> tuple[int, str, str | None]:
        """Epoch, member id and instance id: what commits carry."""
        return self.epoch, self.member_id, self.options.instance_id

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        return self._named(self._owned)

    @property
    def held(self) -> tuple[TopicPartition, ...]:
        """What nobody else can have: what it owns, and what it is about to give up."""
        return self._named(self._owned | self._held)

    @property
    def is_beating(self) -> bool:
        return self.state in BEATING

    @property
    def needs_attention(self) -> bool:
        """Whether it is the program's turn."""
        return self.state not in (_S.JOINING, _S.STABLE, _S.ACKNOWLEDGING, _S.LEFT)

    @property
    def is_heartbeat_due(self) -> bool:
        """Whether there is something to say before the interval is over."""
        last = self._last
        is_news = last is None or (self.topics, self.pattern, self._held) != last[1:]
        return self.state in (_S.JOINING, _S.ACKNOWLEDGING) or (self.is_beating and is_news)

    @property
    def unnamed(self) -> frozenset[Uuid]:
        """Topics of the target whose names are not known."""
        return frozenset(topic_id for topic_id, _ in self._target if topic_id not in self._names)

    def subscribe(self, topics: Collection[str], *, pattern: str | None = None) -> None:
        """Changes what it wants to read; the next heartbeat says so."""
        self.topics, self.pattern = frozenset(topics), pattern

    # --- the program's turn --------------------------------------------------------------------

    def prepare(self) -> Change:
        """What the program is to be told.  Raises what the member was refused for."""
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        self._to(MemberEvent.PREPARED)
        before = self._owned
        if self.state is MemberState.REJOINING:
            self._owned = frozenset()
            return Change(lost=self._named(before))
        self._owned = self._ready()
        return Change(revoked=self._named(before - self._owned), assigned=self._named(self._owned - before))

    def told(self) -> None:
        """The program has committed for, and stopped reading, what it had to give up."""
        self._to(MemberEvent.TOLD)
        self._held = self._owned
        if self.state is MemberState.JOINING:
            self.epoch = JOIN_EPOCH
            self._last = None

    # --- heartbeats ----------------------------------------------------------------------------

    def heartbeat(self) -> Heartbeat:
        """The next one: all there is to say after a pause in the talk, else what has changed."""
        last = self._last
        is_full = last is None or self.state is MemberState.JOINING
        says_topics = is_full or (last is not None and last.topics != self.topics)
        says_pattern = is_full or (last is not None and last.pattern != self.pattern)
        says_held = is_full or self.state is MemberState.ACKNOWLEDGING
        options = self.options
        request = ConsumerGroupHeartbeatRequest(
            group_id=options.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=options.instance_id,
            rack_id=(options.rack or None) if is_full else None,
            rebalance_timeout_ms=options.max_poll_interval_ms if is_full else UNCHANGED,
            subscribed_topic_names=sorted(self.topics) if says_topics else None,
            subscribed_topic_regex=self._regex() if says_pattern else None,
            server_assignor=options.remote_assignor if is_full else None,
            topic_partitions=_by_topic(self._held) if says_held else None,
        )
        return Heartbeat(request, self.topics, self.pattern, self._held)

    def _regex(self) -> str | None:
        """An empty one takes a pattern back; who never had one says nothing of it."""
        self._has_told_pattern |= self.pattern is not None
        return self.pattern or ("" if self._has_told_pattern else None)

    def check_version(self, version: int) -> None:
        if self.pattern is not None and version < PATTERNS_SINCE:
            raise UnsupportedVersionError(
                "the broker looks up no patterns of topics (it serves ConsumerGroupHeartbeat before version "
                f"{PATTERNS_SINCE}): subscribe to topics by name, or use group_protocol='classic'"
            )

    def accept(self, heartbeat: Heartbeat, response: ConsumerGroupHeartbeatResponse) -> None:
        """Takes an answer.  Raises an error that is no matter of epochs: the driver judges it."""
        code = as_error_code(response.error_code)
        if code in FENCING:
            self._to(MemberEvent.FENCED)
            return
        about = f"the membership in group {self.options.group_id!r}"
        check_response(response.error_code, about, response.error_message)
        self.member_id = response.member_id or self.member_id
        self.epoch = response.member_epoch
        self.heartbeat_interval_ms = max(1, response.heartbeat_interval_ms)
        self._last = heartbeat
        if response.assignment is not None:
            self._target = frozenset(
                (each.topic_id, index)
                for each in response.assignment.topic_partitions
                for index in each.partitions
            )
        if self.state is MemberState.ACKNOWLEDGING and heartbeat.held != self._held:
            return  # it was on its way before the program was told
        self._review()

    def learn(self, names: Mapping[Uuid, str]) -> None:
        """Takes names of topics in the target."""
        wanted = {topic_id for topic_id, _ in self._target | self._owned | self._held}
        known = {**self._names, **names}
        self._names = {topic_id: known[topic_id] for topic_id in wanted & known.keys()}
        if self.state in (MemberState.STABLE, MemberState.RECONCILING):
            self._review()

    def missed(self) -> None:
        """A heartbeat had no answer: the next one says everything."""
        self._last = None

    def refused(self, error: DlogError) -> None:
        """The program is told, and all that it has is lost."""
        self.failure = error
        self._to(MemberEvent.REFUSED)

    def poll_expired(self) -> None:
        self._to(MemberEvent.POLL_EXPIRED)

    def leave_request(self) -> ConsumerGroupHeartbeatRequest:
        """A static member leaves for a while: what it has stays its own until its session ends."""
        epoch = LEAVE_EPOCH if self.options.instance_id is None else LEAVE_STATIC_EPOCH
        return ConsumerGroupHeartbeatRequest(
            group_id=self.options.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.options.instance_id,
        )

    def left(self) -> None:
        self._to(MemberEvent.LEFT)

    # --- inside --------------------------------------------------------------------------------

    def _to(self, event: MemberEvent) -> None:
        self.state = TRANSITIONS[self.state, event]
        if not self.is_beating:
            self._target = frozenset()  # only a member is to have anything: no names are asked for

    def _review(self) -> None:
        self._to(MemberEvent.SAME if self._ready() == self._owned else MemberEvent.DIFFERS)

    def _ready(self) -> frozenset[TopicIdPartition]:
        """The target, as far as the names of its topics are known."""
        return frozenset(each for each in self._target if each[0] in self._names)

    def _named(self, partitions: Iterable[TopicIdPartition]) -> tuple[TopicPartition, ...]:
        return tuple(sorted(TopicPartition(self._names[topic_id], index) for topic_id, index in partitions))


def _by_topic(partitions: Iterable[TopicIdPartition]) -> list[OwnedTopicPartitions]:
    found: dict[Uuid, list[int]] = {}
    for topic_id, index in sorted(partitions):
        found.setdefault(topic_id, []).append(index)
    return [OwnedTopicPartitions(topic_id=topic_id, partitions=each) for topic_id, each in found.items()]
