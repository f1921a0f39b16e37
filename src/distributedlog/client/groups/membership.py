"""Where a member of a classic group stands, and what each answer of the coordinator means.  Pure.

    outside --(join)--> joining --(sync)--> stable --(heartbeats)--> stable
       ^                   ^                   |
       |                   +--- a rebalance ---+
       +--- forgotten by the coordinator, left, polled too late ---+

| the answer              | then                                                                             |
|-------------------------|----------------------------------------------------------------------------------|
| REBALANCE_IN_PROGRESS   | it joins again with its id; what it has it keeps until then                      |
| MEMBER_ID_REQUIRED      | it joins again with the id that came with the answer                             |
| ILLEGAL_GENERATION      | the group went on without it: what it had is lost, it joins again with its id    |
| UNKNOWN_MEMBER_ID       | the coordinator has forgotten it: all is lost, it joins as a new member          |
| FENCED_INSTANCE_ID      | another process has its instance id: raised, for good                            |
| another                 | raised; the driver knows which are worth another try                             |

**Eager** members give up everything before they join.  **Cooperative** ones keep it, learn by the new
assignment what they have to give up, and then join once more, so that others get it.

**Invariants.**  `owned` is empty in every state but stable, unless the member is cooperative.  Nothing is
lost silently: whatever leaves `owned` is in a `Change`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from distributedlog.client.errors import as_error_code, check_response
from distributedlog.client.groups.assignors import Assignor, assignors_named
from distributedlog.client.groups.subscription import (
    MemberSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import BrokerError, ConfigError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.heartbeat import HeartbeatRequest
from distributedlog.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from distributedlog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from distributedlog.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

PROTOCOL_TYPE: Final = "consumer"
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
PROTOCOLS: Final = (CLASSIC, CONSUMER)
"""The protocols of groups, as `group.protocol` names them."""
NO_GENERATION: Final = -1
LEAVES_SEVERAL_SINCE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    group_id: str
    instance_id: str | None = None
    """The name of a static member, which may be away for a session without a rebalance."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    assignors: tuple[str, ...] = ("range", "cooperative-sticky")
    protocol: str = CLASSIC
    """`classic`, or `consumer`: sessions, heartbeats and assignors are the coordinator's then (KIP-848)."""
    remote_assignor: str | None = None
    """The coordinator's assignor that the member asks for; None: whichever the group has."""
    rack: str = ""

    def __post_init__(self) -> None:
        if not self.group_id:
            raise ConfigError("group_id is empty")
        if min(self.heartbeat_interval_ms, self.max_poll_interval_ms) <= 0:
            raise ConfigError("heartbeat_interval_ms and max_poll_interval_ms must be positive")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError("heartbeat_interval_ms must be less than session_timeout_ms")
        assignors_named(self.assignors)
        if self.protocol not in PROTOCOLS:
            raise ConfigError(f"there is no group_protocol {self.protocol!r}: classic or consumer")


class State(Enum):
    OUTSIDE = "outside"
    JOINING = "joining"
    STABLE = "stable"


class Change(NamedTuple):
    """What a rebalance did to a member, in the order in which its callbacks are called."""

    lost: tuple[TopicPartition, ...] = ()
    """Others may have them already: nothing can be committed for them."""
    revoked: tuple[TopicPartition, ...] = ()
    assigned: tuple[TopicPartition, ...] = ()


class Lead(NamedTuple):
    """The member is the leader and has to assign."""

    assignor: Assignor
    members: Mapping[str, MemberSubscription]

    @property
    def topics(self) -> set[str]:
        return {topic for each in self.members.values() for topic in each.topics}


class Membership:
    def __init__(self, options: GroupOptions, topics: Collection[str] = ()) -> None:
        self.options = options
        self.state = State.OUTSIDE
        self.member_id = ""
        self.generation = NO_GENERATION
        self.topics: frozenset[str] = frozenset(topics)
        self.owned: tuple[TopicPartition, ...] = ()
        self.must_join = True
        self._topics_told = self.topics
        """What the coordinator was last told that it wants to read."""
        self._assignors = assignors_named(options.assignors)
        self._previous: tuple[tuple[TopicPartition, ...], int] = ((), NO_GENERATION)
        """What it had and since when, for assignors that want to give it the same again."""
        self._protocol = ""
        self._lost: tuple[TopicPartition, ...] = ()

    @property
    def is_cooperative(self) -> bool:
        return all(each.is_cooperative for each in self._assignors)

    @property
    def identity(self) -> tuple[int, str, str | None]:
        """Generation, member id and instance id: what commits carry."""
        return self.generation, self.member_id, self.options.instance_id

    def subscribe(self, topics: Collection[str]) -> None:
        """Changes what it wants to read; that takes a rebalance."""
        if frozenset(topics) != self.topics:
            self.topics = frozenset(topics)
            self.must_join = True

    # --- joining -------------------------------------------------------------------------------

    def prepare(self) -> Change:
        """What has to be given up before the member joins."""
        lost, self._lost = self._lost, ()
        given_up = tuple(
            each for each in self.owned if not self.is_cooperative or each.topic not in self.topics
        )
        self.owned = tuple(each for each in self.owned if each not in given_up)
        return Change(lost=lost, revoked=given_up)

    def join_request(self, reason: str | None = None) -> JoinGroupRequest:
        self.state = State.JOINING
        self._topics_told = self.topics
        owned = self.owned if self.is_cooperative else ()
        previous, generation = self._previous
        return JoinGroupRequest(
            group_id=self.options.group_id,
            session_timeout_ms=self.options.session_timeout_ms,
            rebalance_timeout_ms=self.options.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=self.options.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=each.name,
                    metadata=encode_subscription(
                        self.topics,
                        owned,
                        self.generation,
                        user_data=each.user_data(previous, generation),
                    ),
                )
                for each in self._assignors
            ],
            reason=reason,
        )

    def accept_join(self, response: JoinGroupResponse) -> Lead | bool:
        """Returns what the leader has to assign; True for a follower; False if it has to join once more."""
        code = as_error_code(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return False
        if self._is_over(code):
            return False
        check_response(response.error_code, f"joining group {self.options.group_id!r}")
        self.member_id = response.member_id
        self.generation = response.generation_id
        self._protocol = response.protocol_name or ""
        if response.leader != response.member_id:
            return True
        assignor = next((each for each in self._assignors if each.name == self._protocol), None)
        if assignor is None:
            raise BrokerError(
                f"the coordinator chose assignor {self._protocol!r}", ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            )
        members = {
            each.member_id: decode_subscription(each.metadata, each.group_instance_id)
            for each in response.members
        }
        return True if response.skip_assignment else Lead(assignor, members)

    def sync_request(self, assignments: Mapping[str, Collection[TopicPartition]] | None) -> SyncGroupRequest:
        """None from whoever does not assign."""
        return SyncGroupRequest(
            group_id=self.options.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.options.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(partitions))
                for member, partitions in (assignments or {}).items()
            ],
        )

    def accept_sync(self, response: SyncGroupResponse) -> Change | None:
        """Returns what changed; None if it has to join once more."""
        if self._is_over(as_error_code(response.error_code)):
            return None
        check_response(response.error_code, f"the assignment of group {self.options.group_id!r}")
        assigned = decode_assignment(response.assignment)
        had, has = set(self.owned), set(assigned)
        change = Change(
            revoked=tuple(sorted(had - has)),
            assigned=tuple(each for each in assigned if each not in had),
        )
        self.owned = assigned
        self._previous = (assigned, self.generation)
        self.state = State.STABLE
        self.must_join = bool(change.revoked) or self.topics != self._topics_told
        return change

    # --- being a member ------------------------------------------------------------------------

    def heartbeat_request(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.options.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.options.instance_id,
        )

    def accept_error(self, number: int, about: str) -> None:
        """Takes the answer to a heartbeat or a commit: raises if it is no matter of membership."""
        if not self._is_over(as_error_code(number)):
            check_response(number, about)

    def leave_request(self, version: int, reason: str) -> LeaveGroupRequest:
        if version < LEAVES_SEVERAL_SINCE:
            return LeaveGroupRequest(group_id=self.options.group_id, member_id=self.member_id)
        member = MemberIdentity(
            member_id=self.member_id, group_instance_id=self.options.instance_id, reason=reason
        )
        return LeaveGroupRequest(group_id=self.options.group_id, members=[member])

    def left(self) -> None:
        """It is no member any more: what it had others may have."""
        self._forget(with_id=True)

    # --- losing it -----------------------------------------------------------------------------

    def _is_over(self, code: ErrorCode) -> bool:
        """Whether the answer says that the member has to join again."""
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.must_join = True
        elif code is ErrorCode.ILLEGAL_GENERATION:
            self._forget(with_id=False)
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._forget(with_id=True)
        else:
            return False
        return True

    def _forget(self, *, with_id: bool) -> None:
        if with_id:
            self.member_id = ""
        self.generation = NO_GENERATION
        self._lost += self.owned
        self.owned = ()
        self.state = State.OUTSIDE
        self.must_join = True
