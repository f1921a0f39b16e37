"""Brokers: registration, heartbeats, fencing, controlled shutdown.

| state         | in the image                | may lead, be in an ISR | leaves by                      |
|---------------|-----------------------------|------------------------|--------------------------------|
| UNREGISTERED  | not there                   | no                     | registering                    |
| FENCED        | fenced                      | no                     | a heartbeat, having caught up  |
| ACTIVE        | neither of the other two    | yes                    | silence, asking, a new process |
| SHUTTING_DOWN | in shutdown, not yet fenced | no                     | having nothing left to lead    |

A registration is a process, by its incarnation.  The broker epoch is the offset of the record that brought
the incarnation, so it only rises, and whatever an earlier life of the broker still sends is refused by it.
An incarnation that comes while another is alive under the same id is refused.

A process that returns tells in which epoch it last stopped with everything on disk.  If that is not the
epoch it is registered in, it was an unclean stop: it leaves ISR and ELR.  If none of its disks is one that it
had, it holds nothing at all.

SOFT STATE, lost with the controller: when each broker was last heard, how far it has replayed, and at which
offset its shutdown began.  A new controller gives every broker a full session timeout from its own beginning.
But only who was heard by this controller counts as alive when another incarnation comes: a broker that
crashed together with the controller need not wait for its own ghost.
A controller that was itself stopped for a while gives all a full session timeout again: their heartbeats may
lie unread.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from distributedlog.controller.configs import ControllerConfig
from distributedlog.controller.elections import Departed, held_by, is_leaderless, leads_any, sweep
from distributedlog.controller.features import METADATA_FEATURE, has_eligible_leaders
from distributedlog.controller.image import Broker, MetadataImage
from distributedlog.controller.records import (
    FENCE,
    UNFENCE,
    BrokerRegistrationChange,
    UnregisterBroker,
)
from distributedlog.controller.requests import HeartbeatReply, HeartbeatRequest, RegisterBrokerRequest
from distributedlog.controller.snapshots import broker_record
from distributedlog.model.errors import (
    BrokerNotRegisteredError,
    DuplicateRegistrationError,
    InconsistentClusterIdError,
    InvalidRegistrationError,
    StaleBrokerEpochError,
    UnsupportedVersionError,
)
from distributedlog.model.ids import ZERO_UUID
from distributedlog.protocol.schema import Message

ENDPOINTS_MAX: Final = 64
FEATURES_MAX: Final = 256
LOG_DIRS_MAX: Final = 64
TEXT_LENGTH_MAX: Final = 1_000
PORT_MAX: Final = 65_535
BROKER_ID_MAX: Final = 2**31 - 1
LATE_PARTS: Final = 4
"""Waking later than the session timeout by this part of it means that the controller itself was stopped."""


class BrokerState(Enum):
    UNREGISTERED = "unregistered"
    FENCED = "fenced"
    ACTIVE = "active"
    SHUTTING_DOWN = "shutting down"


class BrokerEvent(Enum):
    REGISTERED = "a new process registered"
    CAUGHT_UP = "heard, and as far as its registration"
    ASKED_FENCING = "asked to be fenced, or its data loop is stuck"
    SILENT = "not heard for a session timeout"
    ASKED_SHUTDOWN = "asked to shut down"
    HANDED_OVER = "leads nothing, and all active brokers know"
    UNREGISTERED = "unregistered by an operator"


TRANSITIONS: Final[Mapping[tuple[BrokerState, BrokerEvent], BrokerState]] = {
    (BrokerState.UNREGISTERED, BrokerEvent.REGISTERED): BrokerState.FENCED,
    (BrokerState.FENCED, BrokerEvent.REGISTERED): BrokerState.FENCED,
    (BrokerState.FENCED, BrokerEvent.CAUGHT_UP): BrokerState.ACTIVE,
    (BrokerState.FENCED, BrokerEvent.UNREGISTERED): BrokerState.UNREGISTERED,
    (BrokerState.ACTIVE, BrokerEvent.REGISTERED): BrokerState.FENCED,
    (BrokerState.ACTIVE, BrokerEvent.ASKED_FENCING): BrokerState.FENCED,
    (BrokerState.ACTIVE, BrokerEvent.SILENT): BrokerState.FENCED,
    (BrokerState.ACTIVE, BrokerEvent.ASKED_SHUTDOWN): BrokerState.SHUTTING_DOWN,
    (BrokerState.ACTIVE, BrokerEvent.HANDED_OVER): BrokerState.FENCED,
    (BrokerState.ACTIVE, BrokerEvent.UNREGISTERED): BrokerState.UNREGISTERED,
    (BrokerState.SHUTTING_DOWN, BrokerEvent.REGISTERED): BrokerState.FENCED,
    (BrokerState.SHUTTING_DOWN, BrokerEvent.ASKED_FENCING): BrokerState.FENCED,
    (BrokerState.SHUTTING_DOWN, BrokerEvent.SILENT): BrokerState.FENCED,
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
    heard: bool
    """By this controller; else it was only granted time."""
    metadata_offset: int = -1
    shutdown_offset: int | None = None
    """Everyone must have replayed this far before the broker may go."""
    log_end_offset: int = -1
    """The end of the log when it was last heard."""
    caught_up_ms: int = -1
    """When it last had all that there was; only told, nothing follows from it."""


class Sessions:
    """Who was heard when."""

    def __init__(self, session_timeout_ms: int) -> None:
        self._timeout_ms = session_timeout_ms
        self._of: dict[int, Session] = {}

    def restart(self, image: MetadataImage, now_ms: int, next_offset: int) -> None:
        """A new controller: everyone has a full session timeout from now."""
        self._of = {}
        for broker_id, broker in image.brokers.items():
            shutdown_offset = next_offset if broker.in_controlled_shutdown else None
            self._of[broker_id] = Session(now_ms, False, shutdown_offset=shutdown_offset)

    def note_progress(self, broker_id: int, now_ms: int, metadata_offset: int, next_offset: int) -> None:
        """How far it is, told in a heartbeat.  Who has by now what there was when it was last heard had all
        of it then: where much is written nobody is ever up to the very end."""
        session = self._of.setdefault(broker_id, Session(now_ms, True))
        if metadata_offset + 1 >= next_offset:
            session.caught_up_ms = now_ms
        elif metadata_offset + 1 >= session.log_end_offset >= 0:
            session.caught_up_ms = max(session.caught_up_ms, session.last_contact_ms)
        session.log_end_offset = next_offset

    def touch(self, broker_id: int, now_ms: int, metadata_offset: int = -1) -> Session:
        session = self._of.setdefault(broker_id, Session(now_ms, True))
        session.last_contact_ms = max(session.last_contact_ms, now_ms)
        session.heard = True
        session.metadata_offset = max(session.metadata_offset, metadata_offset)
        return session

    def heard(self) -> Iterator[tuple[int, Session]]:
        """Those that this controller has heard, by id."""
        return (
            (broker_id, self._of[broker_id]) for broker_id in sorted(self._of) if self._of[broker_id].heard
        )

    def begin(self, broker_id: int, now_ms: int) -> None:
        """Of a new incarnation."""
        self._of[broker_id] = Session(now_ms, True)

    def is_alive(self, broker_id: int, now_ms: int) -> bool:
        session = self._of.get(broker_id)
        return session is not None and session.heard and now_ms < session.last_contact_ms + self._timeout_ms

    def first_silent(self, image: MetadataImage) -> tuple[int, int] | None:
        """When the next unfenced broker is to be fenced, and which."""
        return min(
            (
                (session.last_contact_ms + self._timeout_ms, broker_id)
                for broker_id, session in self._of.items()
                if (broker := image.brokers.get(broker_id)) is not None and not broker.fenced
            ),
            default=None,
        )

    def excuse(self, due_ms: int, now_ms: int) -> None:
        """Long overdue, so the controller itself did not run: nobody could be heard, and all begin anew."""
        if (now_ms - due_ms) * LATE_PARTS > self._timeout_ms:
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
    config: ControllerConfig,
    sessions: Sessions,
    request: RegisterBrokerRequest,
    now_ms: int,
    next_offset: int,
) -> tuple[list[Message], int]:
    """The records, and the broker epoch."""
    _check_registration(image, request)
    existing = image.brokers.get(request.broker_id)
    same = existing is not None and existing.incarnation_id == request.incarnation_id
    if existing is not None and not same and sessions.is_alive(request.broker_id, now_ms):
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
    )
    records: list[Message] = []
    if same:
        sessions.touch(request.broker_id, now_ms)
    else:
        _ = TRANSITIONS[state_of(existing), BrokerEvent.REGISTERED]
        departed = _departed_by_restart(existing, request, broker)
        records += sweep(image, config, held_by(request.broker_id), departed=departed)
        sessions.begin(request.broker_id, now_ms)
    records.append(broker_record(broker))
    return records, broker.epoch


def _departed_by_restart(existing: Broker | None, request: RegisterBrokerRequest, broker: Broker) -> Departed:
    """What the new process still has of what the old one had."""
    who = (request.broker_id,)
    disks_known = existing is not None and existing.log_dirs and broker.log_dirs
    if existing is None or (disks_known and not set(existing.log_dirs) & set(broker.log_dirs)):
        return Departed(without_disk=who)
    if request.previous_broker_epoch != existing.epoch:
        return Departed(unclean=who)
    return Departed(leaving=who)


def _check_registration(image: MetadataImage, request: RegisterBrokerRequest) -> None:
    if request.cluster_id != image.cluster_id:
        raise InconsistentClusterIdError(
            f"this is the cluster {image.cluster_id}, and the broker belongs to {request.cluster_id}"
        )
    texts = [request.rack or "", *(each.host for each in request.endpoints)]
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
    config: ControllerConfig,
    sessions: Sessions,
    request: HeartbeatRequest,
    now_ms: int,
    next_offset: int,
) -> tuple[list[Message], HeartbeatReply]:
    broker = check_epoch(image, request.broker_id, request.broker_epoch)
    sessions.note_progress(request.broker_id, now_ms, request.metadata_offset, next_offset)
    session = sessions.touch(request.broker_id, now_ms, request.metadata_offset)
    is_caught_up = request.metadata_offset >= broker.epoch
    before = state_of(broker)
    event = _event_of(image, config, sessions, session, broker, request)
    after = before if event is None else TRANSITIONS[before, event]
    records: list[Message] = []
    if event is not None:
        records = _move(image, config, broker, after)
        if after is BrokerState.SHUTTING_DOWN:
            session.shutdown_offset = next_offset
    is_leaving = request.want_shutdown or broker.in_controlled_shutdown
    reply = HeartbeatReply(
        is_caught_up=is_caught_up,
        is_fenced=after is BrokerState.FENCED,
        in_controlled_shutdown=after is BrokerState.SHUTTING_DOWN,
        should_shut_down=after is BrokerState.FENCED and is_leaving,
    )
    if reply.should_shut_down:
        # Its next incarnation need not wait until this one has been silent for long enough.
        session.heard = False
    return records, reply


def _event_of(
    image: MetadataImage,
    config: ControllerConfig,
    sessions: Sessions,
    session: Session,
    broker: Broker,
    request: HeartbeatRequest,
) -> BrokerEvent | None:
    """What a heartbeat means for its broker; None: nothing new."""
    is_stuck = request.want_fence or request.data_loop_lag_ms > config.data_loop_lag_ms_max
    state = state_of(broker)
    if state is BrokerState.FENCED:
        # One that was on its way out does not come back without registering again.
        may_return = not (is_stuck or request.want_shutdown or broker.in_controlled_shutdown)
        is_caught_up = request.metadata_offset >= broker.epoch
        return BrokerEvent.CAUGHT_UP if may_return and is_caught_up else None
    if is_stuck:
        return BrokerEvent.ASKED_FENCING
    if state is BrokerState.ACTIVE:
        if not request.want_shutdown:
            return None
        leads = leads_any(image, broker.broker_id)
        return BrokerEvent.ASKED_SHUTDOWN if leads else BrokerEvent.HANDED_OVER
    lowest = sessions.lowest_active_offset(image)
    everyone_knows = lowest is None or session.shutdown_offset is None or lowest >= session.shutdown_offset
    if everyone_knows and not leads_any(image, broker.broker_id):
        return BrokerEvent.HANDED_OVER
    return None


def _move(
    image: MetadataImage, config: ControllerConfig, broker: Broker, after: BrokerState
) -> list[Message]:
    """The records of a broker's change of state, partitions included."""
    change = BrokerRegistrationChange(broker_id=broker.broker_id, broker_epoch=broker.epoch)
    if after is BrokerState.ACTIVE:
        change.fenced = UNFENCE
        return [change, *sweep(image, config, is_leaderless, arrived=broker.broker_id)]
    if after is BrokerState.FENCED:
        change.fenced = FENCE
    else:
        change.in_controlled_shutdown = 1
    departed = Departed(leaving=(broker.broker_id,))
    return [*sweep(image, config, held_by(broker.broker_id), departed=departed), change]


def fence_silent(
    image: MetadataImage, config: ControllerConfig, sessions: Sessions, now_ms: int
) -> list[Message]:
    """Fences the broker that has been silent the longest, if its time is over.  One at a time: the next one's
    partitions are to see what this one's departure has changed."""
    silent = sessions.first_silent(image)
    if silent is None or silent[0] > now_ms:
        return []
    broker = image.brokers[silent[1]]
    return _move(image, config, broker, TRANSITIONS[state_of(broker), BrokerEvent.SILENT])


def unregister(image: MetadataImage, config: ControllerConfig, broker_id: int) -> list[Message]:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise BrokerNotRegisteredError(f"broker {broker_id} is not registered")
    _ = TRANSITIONS[state_of(broker), BrokerEvent.UNREGISTERED]
    departed = Departed(without_disk=(broker_id,))
    return [
        *sweep(image, config, held_by(broker_id), departed=departed),
        UnregisterBroker(broker_id=broker_id, broker_epoch=broker.epoch),
    ]


def supports_level(broker: Broker, level: int, name: str = METADATA_FEATURE) -> bool:
    return any(each.name == name and each.low <= level <= each.high for each in broker.features)
