"""Brokers: registration, heartbeats, fencing, controlled shutdown.

| state         | in the image                | may lead, be in an ISR | leaves by                      |
|---------------|-----------------------------|------------------------|--------------------------------|
| UNREGISTERED  | not there                   | no                     | registering                    |
| FENCED        | fenced                      | no                     | a heartbeat, having caught up  |
| ACTIVE        | neither of the other two    | yes                    | silence, asking, a new process |
| SHUTTING_DOWN | in shutdown, not yet fenced | no                     | having nothing left to lead    |

A registration is a process, by its incarnation.  The broker epoch is the offset of the record that brought
the incarnation, so it only rises, and whatever an earlier life of the broker still sends is refused by it.
An incarnation that comes while another is alive under the same id is refused, but for one that names it
among its predecessors: it has the lock of their directory, so the other is dead (decision 30).

A process that returns says in which epoch it last stopped with everything on disk.  If that is not the
epoch it is registered in, it was an unclean stop: it leaves ISR and ELR, unless it says that in this epoch
nothing was committed by it that was not synced (decision 33).  If none of its disks is one that it
had, it holds nothing at all.

A broker whose ports refuse is fenced after a short silence (decision 34).  It may be alive all the same, and
hold a lease; so until a session after its last heartbeat it counts among those who may.

SOFT STATE, lost with the controller: when each broker sent its last heartbeat, how far it has replayed, at
which offset its shutdown began, and what else is heard from brokers (`sessions`).  A new controller takes the
time of its election for silence: every broker has the rest of a session timeout, which is no less than a
lease lasts (decision 34).  But only who sent this controller a heartbeat counts as alive when another
incarnation comes: a broker that crashed together with the controller need not wait for its own ghost.  (One
that comes with other disks does: it has no lock that proves its predecessor gone, and that one may hold a
lease.)  A controller that was itself stopped for a while gives all a full session timeout again: their
heartbeats may lie unread.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from distributedlog.controller.cluster_settings import data_loop_lag_ms_max, session_timeout_ms
from distributedlog.controller.elections import (
    Departed,
    all_partitions,
    change_record,
    held_by,
    is_leaderless,
    leads_any,
    plan,
    rules_of,
    sweep,
)
from distributedlog.controller.features import METADATA_FEATURE, has_eligible_leaders, has_hosts
from distributedlog.controller.image import Broker, MetadataImage
from distributedlog.controller.records import (
    FENCE,
    UNFENCE,
    BrokerRegistrationChange,
    PartitionChanged,
    UnregisterBroker,
)
from distributedlog.controller.replica_faults import settle_faults
from distributedlog.controller.requests import (
    FenceRefusedRequest,
    HeartbeatReply,
    HeartbeatRequest,
    RegisterBrokerRequest,
)
from distributedlog.controller.sessions.leases import Leases
from distributedlog.controller.sessions.unclean import UncleanElections
from distributedlog.controller.snapshots import broker_record
from distributedlog.model.errors import (
    BrokerNotRegisteredError,
    DuplicateRegistrationError,
    InconsistentClusterIdError,
    InvalidRegistrationError,
    StaleBrokerEpochError,
    UnsupportedVersionError,
)
from distributedlog.model.ids import ZERO_UUID, Uuid
from distributedlog.protocol.schema import Message

ENDPOINTS_MAX: Final = 64
FEATURES_MAX: Final = 256
LOG_DIRS_MAX: Final = 64
PREDECESSORS_MAX: Final = 64
TEXT_LENGTH_MAX: Final = 1_000
PORT_MAX: Final = 65_535
BROKER_ID_MAX: Final = 2**31 - 1
ELECTION_PARTS: Final = 8
"""A new controller takes everybody for silent since an election timeout ago, or since this part of a session
timeout if that is less: the rest is longer than a lease, which another may have granted just now."""
LATE_PARTS: Final = 4
"""Waking later than the session timeout by this part of it means that the controller itself was stopped."""


class BrokerState(Enum):
    UNREGISTERED = "unregistered"
    FENCED = "fenced"
    ACTIVE = "active"
    SHUTTING_DOWN = "shutting down"


class BrokerEvent(Enum):
    REGISTERED = "a new process registered"
    CAUGHT_UP = "a heartbeat came, and it has replayed its registration"
    FENCING_REQUESTED = "asked to be fenced, or its data loop is stuck"
    EXPIRED = "no heartbeat for a session timeout"
    REFUSED = "no heartbeat for a short while, and its ports refuse"
    SHUTDOWN_REQUESTED = "asked to shut down"
    HANDED_OVER = "leads nothing, and all active brokers know"
    UNREGISTERED = "unregistered by an operator"


TRANSITIONS: Final[Mapping[tuple[BrokerState, BrokerEvent], BrokerState]] = {
    (BrokerState.UNREGISTERED, BrokerEvent.REGISTERED): BrokerState.FENCED,
    (BrokerState.FENCED, BrokerEvent.REGISTERED): BrokerState.FENCED,
    (BrokerState.FENCED, BrokerEvent.CAUGHT_UP): BrokerState.ACTIVE,
    (BrokerState.FENCED, BrokerEvent.UNREGISTERED): BrokerState.UNREGISTERED,
    (BrokerState.ACTIVE, BrokerEvent.REGISTERED): BrokerState.FENCED,
    (BrokerState.ACTIVE, BrokerEvent.FENCING_REQUESTED): BrokerState.FENCED,
    (BrokerState.ACTIVE, BrokerEvent.EXPIRED): BrokerState.FENCED,
    (BrokerState.ACTIVE, BrokerEvent.REFUSED): BrokerState.FENCED,
    (BrokerState.ACTIVE, BrokerEvent.SHUTDOWN_REQUESTED): BrokerState.SHUTTING_DOWN,
    (BrokerState.ACTIVE, BrokerEvent.HANDED_OVER): BrokerState.FENCED,
    (BrokerState.ACTIVE, BrokerEvent.UNREGISTERED): BrokerState.UNREGISTERED,
    (BrokerState.SHUTTING_DOWN, BrokerEvent.REGISTERED): BrokerState.FENCED,
    (BrokerState.SHUTTING_DOWN, BrokerEvent.FENCING_REQUESTED): BrokerState.FENCED,
    (BrokerState.SHUTTING_DOWN, BrokerEvent.EXPIRED): BrokerState.FENCED,
    (BrokerState.SHUTTING_DOWN, BrokerEvent.REFUSED): BrokerState.FENCED,
    (BrokerState.SHUTTING_DOWN, BrokerEvent.HANDED_OVER): BrokerState.FENCED,
    (BrokerState.SHUTTING_DOWN, BrokerEvent.UNREGISTERED): BrokerState.UNREGISTERED,
}
"""A pair that is not here cannot happen: a KeyError is a defect of this package."""


def state_of(broker: Broker | None) -> BrokerState:
    if broker is None:
        return BrokerState.UNREGISTERED
    if broker.fenced:
        return BrokerState.FENCED
    return BrokerState.SHUTTING_DOWN if broker.in_controlled_shutdown else BrokerState.ACTIVE


# --- soft state --------------------------------------------------------------------------------


@dataclass(slots=True)
class Session:
    """What is known of one broker's life, beyond the image."""

    last_contact_ms: int
    silent_since_ms: int
    """The time from which its silence counts, if its ports refuse."""
    heard: bool
    """Whether this controller has heard it; else it was only granted time."""
    metadata_offset: int = -1
    shutdown_offset: int | None = None
    """Everyone must have replayed this far before the broker may go."""
    log_end_offset: int = -1
    """The end of the log at its last heartbeat."""
    caught_up_ms: int = -1
    """The time at which it last had all that there was; only reported, nothing follows from it."""


class Sessions:
    """The sessions of all brokers; how long they last the image says."""

    def __init__(self) -> None:
        self._of: dict[int, Session] = {}
        self._lease_ends_ms: dict[int, int] = {}
        """The time at which the lease has surely ended of a broker that is fenced and may be alive."""
        self.leases = Leases()
        self.unclean = UncleanElections()

    def restart(
        self,
        image: MetadataImage,
        now_ms: int,
        next_offset: int,
        refused_timeout_ms: int = 0,
        election_timeout_ms: int = 0,
    ) -> None:
        """A new controller: everyone was last heard before it was elected (`ELECTION_PARTS`).

        But for who is dead by what its ports say: who was the controller before was silent for longer than it
        takes to elect another, and the others have half of the time for a first heartbeat.
        """
        timeout_ms = session_timeout_ms(image)
        contact_ms = now_ms - min(election_timeout_ms, timeout_ms // ELECTION_PARTS)
        self._of = {}
        self._lease_ends_ms = {
            broker_id: contact_ms + timeout_ms
            for broker_id, broker in image.brokers.items()
            if broker.fenced and not broker.in_controlled_shutdown
        }
        self.leases.restart(next_offset - 1)
        self.unclean.restart(image)
        for broker_id, broker in image.brokers.items():
            shutdown_offset = next_offset if broker.in_controlled_shutdown else None
            granted_ms = 0 if broker_id == image.controller_id else refused_timeout_ms // 2
            silent_since_ms = now_ms - refused_timeout_ms + granted_ms
            session = Session(contact_ms, silent_since_ms, False, shutdown_offset=shutdown_offset)
            self._of[broker_id] = session

    def note_progress(self, broker_id: int, now_ms: int, metadata_offset: int, next_offset: int) -> None:
        """Notes how far a heartbeat says it is.  Who has by now what there was at its last heartbeat had all
        of it then: where much is written nobody is ever up to the very end."""
        session = self._of.setdefault(broker_id, Session(now_ms, now_ms, True))
        if metadata_offset + 1 >= next_offset:
            session.caught_up_ms = now_ms
        elif metadata_offset + 1 >= session.log_end_offset >= 0:
            session.caught_up_ms = max(session.caught_up_ms, session.last_contact_ms)
        session.log_end_offset = next_offset

    def touch(self, broker_id: int, now_ms: int, metadata_offset: int = -1) -> Session:
        session = self._of.setdefault(broker_id, Session(now_ms, now_ms, True))
        session.last_contact_ms = max(session.last_contact_ms, now_ms)
        session.silent_since_ms = max(session.silent_since_ms, now_ms)
        session.heard = True
        session.metadata_offset = max(session.metadata_offset, metadata_offset)
        return session

    def heard(self) -> Iterator[tuple[int, Session]]:
        """Returns the sessions of brokers that sent this controller a heartbeat, by id."""
        return (
            (broker_id, self._of[broker_id]) for broker_id in sorted(self._of) if self._of[broker_id].heard
        )

    def begin(self, broker_id: int, now_ms: int) -> None:
        """Begins with a new incarnation."""
        self._of[broker_id] = Session(now_ms, now_ms, True)
        self._lease_ends_ms.pop(broker_id, None)

    def is_alive(self, image: MetadataImage, broker_id: int, now_ms: int, *, is_heard: bool = True) -> bool:
        """Returns whether the broker's session lasts; of one that this controller heard if `is_heard`."""
        session = self._of.get(broker_id)
        if session is None or (is_heard and not session.heard):
            return False
        return now_ms < session.last_contact_ms + session_timeout_ms(image)

    def next_expiry(self, image: MetadataImage) -> tuple[int, int] | None:
        """Returns when the next unfenced broker is to be fenced, and which."""
        timeout_ms = session_timeout_ms(image)
        return min(
            (
                (session.last_contact_ms + timeout_ms, broker_id)
                for broker_id, session in self._of.items()
                if (broker := image.brokers.get(broker_id)) is not None and not broker.fenced
            ),
            default=None,
        )

    def find_silent(self, image: MetadataImage, now_ms: int, wait_ms: int) -> Iterator[Broker]:
        """Returns the unfenced brokers that have been silent for `wait_ms`, by id."""
        for broker_id in sorted(self._of):
            broker = image.brokers.get(broker_id)
            is_silent = now_ms - self._of[broker_id].silent_since_ms >= wait_ms
            if is_silent and broker is not None and not broker.fenced:
                yield broker

    def note_fenced_early(self, image: MetadataImage, broker_id: int) -> None:
        """Notes that a broker is fenced that may be alive, and answer by the lease it has."""
        self._lease_ends_ms[broker_id] = self._of[broker_id].last_contact_ms + session_timeout_ms(image)

    def find_lease_holders(self, image: MetadataImage, now_ms: int) -> Iterator[int]:
        """Returns the brokers that may hold a lease: all that are active, and those that were fenced when
        their lease may not have ended."""
        for broker_id in image.brokers:
            if image.is_active(broker_id) or self.may_hold_lease(broker_id, now_ms):
                yield broker_id

    def may_hold_lease(self, broker_id: int, now_ms: int) -> bool:
        """Returns whether a broker that is fenced may be alive, and answer by the lease it had."""
        return now_ms < self._lease_ends_ms.get(broker_id, now_ms)

    def excuse(self, image: MetadataImage, due_ms: int, now_ms: int) -> None:
        """Begins all sessions anew if one is long overdue: the controller itself did not run then."""
        if (now_ms - due_ms) * LATE_PARTS > session_timeout_ms(image):
            for session in self._of.values():
                session.last_contact_ms = now_ms

    def lowest_active_offset(self, image: MetadataImage) -> int | None:
        return min(
            (
                session.metadata_offset
                for broker_id, session in self._of.items()
                if image.is_active(broker_id)
            ),
            default=None,
        )


# --- requests ----------------------------------------------------------------------------------


def check_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> Broker:
    """The broker, if whoever speaks for it is its present life."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise StaleBrokerEpochError(f"broker {broker_id} is not registered")
    if broker.epoch != broker_epoch:
        raise StaleBrokerEpochError(
            f"broker {broker_id} is registered in epoch {broker.epoch}, not {broker_epoch}"
        )
    return broker


def register(
    image: MetadataImage,
    sessions: Sessions,
    request: RegisterBrokerRequest,
    now_ms: int,
    next_offset: int,
) -> tuple[list[Message], int]:
    """The records, and the broker epoch."""
    _check_registration(image, request)
    existing = image.brokers.get(request.broker_id)
    same = existing is not None and existing.incarnation_id == request.incarnation_id
    if existing is not None and not same and not _proves_gone(existing, request):
        # A predecessor on the same disks is gone, or this process would not have their lock.
        may_answer = existing.is_active or sessions.may_hold_lease(request.broker_id, now_ms)
        is_heard = not (may_answer and _has_other_disks(existing, request.log_dirs))
        if sessions.is_alive(image, request.broker_id, now_ms, is_heard=is_heard):
            raise DuplicateRegistrationError(f"another process is alive as broker {request.broker_id}")
    broker = Broker(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        epoch=existing.epoch if existing and same else next_offset,
        endpoints=request.endpoints,
        features=request.features,
        rack=request.rack,
        fenced=existing.fenced if existing and same else True,
        in_controlled_shutdown=existing.in_controlled_shutdown if existing and same else False,
        log_dirs=request.log_dirs if has_eligible_leaders(image.level) else (),
        host=request.host if has_hosts(image.level) else None,
    )
    records: list[Message] = []
    if same:
        sessions.touch(request.broker_id, now_ms)
    else:
        _ = TRANSITIONS[state_of(existing), BrokerEvent.REGISTERED]
        departed = _departed_by_restart(existing, request, broker)
        records += sweep(image, held_by(request.broker_id), departed=departed)
        sessions.begin(request.broker_id, now_ms)
    records.append(broker_record(broker))
    return records, broker.epoch


def _proves_gone(existing: Broker, request: RegisterBrokerRequest) -> bool:
    """Returns whether the process that is registered is dead: it had the lock that this one has."""
    return existing.incarnation_id in request.predecessors and set(existing.log_dirs) <= set(request.log_dirs)


def _departed_by_restart(existing: Broker | None, request: RegisterBrokerRequest, broker: Broker) -> Departed:
    """Returns what the new process still has of what the old one had."""
    who = (request.broker_id,)
    if existing is None or _has_other_disks(existing, broker.log_dirs):
        return Departed(without_disk=who)
    if existing.epoch not in (request.previous_broker_epoch, request.synced_broker_epoch):
        return Departed(unclean=who)
    return Departed(leaving=who)


def _has_other_disks(existing: Broker, log_dirs: tuple[Uuid, ...]) -> bool:
    """Returns whether none of these disks is one that the broker had, as far as that is known."""
    return bool(existing.log_dirs and log_dirs) and not set(existing.log_dirs) & set(log_dirs)


def _check_registration(image: MetadataImage, request: RegisterBrokerRequest) -> None:
    if request.cluster_id != image.cluster_id:
        raise InconsistentClusterIdError(
            f"this is the cluster {image.cluster_id}, and the broker belongs to {request.cluster_id}"
        )
    texts = [request.rack or "", request.host or "", *(each.host for each in request.endpoints)]
    texts += [each.name for each in request.endpoints] + [each.name for each in request.features]
    wrong = (
        not 0 <= request.broker_id <= BROKER_ID_MAX
        or request.incarnation_id == ZERO_UUID
        or not 0 < len(request.endpoints) <= ENDPOINTS_MAX
        or len({each.name for each in request.endpoints}) != len(request.endpoints)
        or any(not 0 <= each.port <= PORT_MAX for each in request.endpoints)
        or len(request.features) > FEATURES_MAX
        or len({each.name for each in request.features}) != len(request.features)
        or len(set(request.log_dirs)) != len(request.log_dirs)
        or len(request.log_dirs) > LOG_DIRS_MAX
        or len(request.predecessors) > PREDECESSORS_MAX
        or any(len(text) > TEXT_LENGTH_MAX for text in texts)
    )
    if wrong:
        raise InvalidRegistrationError(
            f"the registration of broker {request.broker_id} is incomplete, or contradicts itself"
        )
    known = {each.name: each for each in request.features}
    for name, level in image.features.items():
        supported = known.get(name)
        if supported is None or not supported.low <= level <= supported.high:
            raise UnsupportedVersionError(
                f"the cluster is at level {level} of {name}, which broker {request.broker_id} does not know"
            )


def heartbeat(
    image: MetadataImage,
    sessions: Sessions,
    request: HeartbeatRequest,
    now_ms: int,
    next_offset: int,
) -> tuple[list[Message], HeartbeatReply]:
    broker = check_epoch(image, request.broker_id, request.broker_epoch)
    leases, told = sessions.leases, request.applied_offset
    leases.note_applied(request.broker_id, request.metadata_offset if told is None else told)
    sessions.note_progress(request.broker_id, now_ms, request.metadata_offset, next_offset)
    session = sessions.touch(request.broker_id, now_ms, request.metadata_offset)
    sessions.unclean.note_log_ends(image, request.broker_id, request.broker_epoch, request.log_ends)
    is_caught_up = request.metadata_offset >= broker.epoch
    records: list[Message] = [*_settle_faults(image, request, next_offset)]
    image = image.apply(records, next_offset)
    before = state_of(broker)
    event = _event_of(image, sessions, session, broker, request)
    after = before if event is None else TRANSITIONS[before, event]
    if event is not None:
        records += _move(image, broker, after)
        if after is BrokerState.SHUTTING_DOWN:
            session.shutdown_offset = next_offset
    is_leaving = request.want_shutdown or broker.in_controlled_shutdown
    reply = HeartbeatReply(
        is_caught_up=is_caught_up,
        is_fenced=after is BrokerState.FENCED,
        in_controlled_shutdown=after is BrokerState.SHUTTING_DOWN,
        should_shut_down=after is BrokerState.FENCED and is_leaving,
        took_replica_faults=bool(request.replica_faults),
        lease_offset=next_offset if records else leases.lease_offset(request.broker_id),
        settled_offset=leases.settled_offset(
            sessions.find_lease_holders(image, now_ms), request.broker_id, next_offset - 1
        ),
    )
    if reply.should_shut_down:
        # Its next incarnation need not wait until the session of this one has expired.
        session.heard = False
    return records, reply


def _settle_faults(
    image: MetadataImage, request: HeartbeatRequest, next_offset: int
) -> list[PartitionChanged]:
    """Returns what changes by what the broker tells of its replicas; who led last and can do so leads."""
    if not request.replica_faults:
        return []
    records = settle_faults(image, request.broker_id, request.replica_faults)
    told = {(each.topic_id, each.partition_id) for each in request.replica_faults}
    after = image.apply(records, next_offset)
    for topic, partition_id, partition in all_partitions(after):
        if (topic.topic_id, partition_id) in told and is_leaderless(partition):
            target = plan(partition, rules_of(after, topic.name), after.is_active)
            record = change_record(topic, partition_id, partition, target)
            if record is not None:
                records.append(record)
    return records


def _event_of(
    image: MetadataImage,
    sessions: Sessions,
    session: Session,
    broker: Broker,
    request: HeartbeatRequest,
) -> BrokerEvent | None:
    """Returns what a heartbeat means for its broker; None: nothing new."""
    is_stuck = request.want_fence or request.data_loop_lag_ms > data_loop_lag_ms_max(image)
    state = state_of(broker)
    if state is BrokerState.FENCED:
        # One that was on its way out does not come back without registering again.
        may_return = not (is_stuck or request.want_shutdown or broker.in_controlled_shutdown)
        is_caught_up = request.metadata_offset >= broker.epoch
        return BrokerEvent.CAUGHT_UP if may_return and is_caught_up else None
    if is_stuck:
        return BrokerEvent.FENCING_REQUESTED
    if state is BrokerState.ACTIVE:
        if not request.want_shutdown:
            return None
        leads = leads_any(image, broker.broker_id)
        return BrokerEvent.SHUTDOWN_REQUESTED if leads else BrokerEvent.HANDED_OVER
    lowest = sessions.lowest_active_offset(image)
    everyone_knows = lowest is None or session.shutdown_offset is None or lowest >= session.shutdown_offset
    if everyone_knows and not leads_any(image, broker.broker_id):
        return BrokerEvent.HANDED_OVER
    return None


def _move(image: MetadataImage, broker: Broker, after: BrokerState) -> list[Message]:
    """The records of a broker's change of state, partitions included."""
    change = BrokerRegistrationChange(broker_id=broker.broker_id, broker_epoch=broker.epoch)
    if after is BrokerState.ACTIVE:
        change.fenced = UNFENCE
        return [change, *sweep(image, is_leaderless, arrived=broker.broker_id)]
    if after is BrokerState.FENCED:
        change.fenced = FENCE
    else:
        change.in_controlled_shutdown = 1
    departed = Departed(leaving=(broker.broker_id,))
    return [*sweep(image, held_by(broker.broker_id), departed=departed), change]


def fence_expired(image: MetadataImage, sessions: Sessions, now_ms: int) -> list[Message]:
    """Fences the broker whose session expired first, if one did.  One at a time: the next one's
    partitions are to see what this one's departure has changed."""
    expiry = sessions.next_expiry(image)
    if expiry is None or expiry[0] > now_ms:
        return []
    broker = image.brokers[expiry[1]]
    return _move(image, broker, TRANSITIONS[state_of(broker), BrokerEvent.EXPIRED])


def fence_refused(
    image: MetadataImage, sessions: Sessions, request: FenceRefusedRequest, now_ms: int, wait_ms: int
) -> list[Message]:
    """Fences a broker whose ports refuse, if it is silent still."""
    broker = check_epoch(image, request.broker_id, request.broker_epoch)
    if broker not in sessions.find_silent(image, now_ms, wait_ms):
        return []
    sessions.note_fenced_early(image, broker.broker_id)
    return _move(image, broker, TRANSITIONS[state_of(broker), BrokerEvent.REFUSED])


def unregister(image: MetadataImage, broker_id: int) -> list[Message]:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise BrokerNotRegisteredError(f"broker {broker_id} is not registered")
    _ = TRANSITIONS[state_of(broker), BrokerEvent.UNREGISTERED]
    departed = Departed(without_disk=(broker_id,))
    return [
        *sweep(image, held_by(broker_id), departed=departed),
        UnregisterBroker(broker_id=broker_id, broker_epoch=broker.epoch),
    ]


def supports_level(broker: Broker, level: int, name: str = METADATA_FEATURE) -> bool:
    return any(each.name == name and each.low <= level <= each.high for each in broker.features)
