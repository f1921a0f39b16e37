"""Fetch: record batches from an offset on, of several partitions.

    enough can be read, or nothing must be waited for    answered at once
    else                                                 delayed; released by `delayed`, then read anew
    a follower has news, though no records               answered in the next turn of the loop

What must not be waited for: a request without partitions or with a wait of 0, a partition with an error, a
follower that must truncate.  While it is delayed a request holds no file open.

Records go from file to socket: the response holds regions, and whoever drops a response closes them
(`_fetch_reading`, `outgoing`).

Sessions (from version 7, `fetch_sessions`) decide which partitions are read, and which of them there is
something to say of: those that were read to their end rest until a signal, and cost a fetch nothing.  Topics
are named in versions up to 12, and have ids from 13 on.  From 16 on a partition that is led elsewhere says
where.  18 has a follower's high watermark, which no consumer sends.  A consumer that says where it stands is
sent to the nearest replica (from 11 on, `_nearest_replica`).

A follower is a reader with a replica id: its fetch offsets say what it has stored, and so move the high
watermark, and it reads what is not committed.  Who has not proved to be that broker is refused as a whole
with CLUSTER_AUTHORIZATION_FAILED, before a session or a partition is looked at (`_replica_ids`).  A
follower's next request releases the one of its session that is still delayed: it tells of records that were
stored meanwhile.  What a throttled follower may not be sent yet (`_fetch_reading`) is no reason to wait for
longer than its throttle says.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from distributedlog.broker.handlers._fetch_reading import (
    NO_EPOCH,
    UNKNOWN_OFFSET,
    Reader,
    Reading,
    read_partitions,
)
from distributedlog.broker.handlers._replica_ids import CONSUMER_ID, authorize_replica
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, Order, handles
from distributedlog.broker.net.outgoing import close_regions
from distributedlog.broker.net.pending import PendingResponse
from distributedlog.broker.replicas.delayed import PAUSE_BYTES_MAX
from distributedlog.broker.replicas.fetch_sessions import FetchContext, FetchSpec, SessionTraits
from distributedlog.broker.replicas.healing import CORRUPT_TAG
from distributedlog.broker.replicas.idle_partitions import IdlePartition, PartitionKey
from distributedlog.broker.replicas.leaders import Leaders
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import StaleBrokerEpochError, UnsupportedVersionError
from distributedlog.model.ids import Uuid
from distributedlog.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

TOPIC_IDS_SINCE: Final = 13
REPLICA_STATE_SINCE: Final = 15
NAMES_LEADER_SINCE: Final = 16

_MOVED: Final = frozenset({int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.FENCED_LEADER_EPOCH)})


def _make_error_response(
    request: FetchRequest, context: RequestContext, code: ErrorCode, text: str
) -> FetchResponse:
    """Makes an error for each partition where the response may have no code for the whole."""
    topics = request.topics if context.api_version < TOPIC_IDS_SINCE else []
    return FetchResponse(
        error_code=code,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(
                        partition_index=each.partition,
                        error_code=code,
                        high_watermark=UNKNOWN_OFFSET,
                        aborted_transactions=None,
                        records=b"",
                    )
                    for each in topic.partitions
                ],
            )
            for topic in topics
        ],
    )


@handles(
    FetchRequest,
    versions=(4, 18),
    error_response=_make_error_response,
    timeout_ms=lambda request: request.max_wait_ms,
    order=Order.OVERTAKEN,
)
def fetch(services: "Services", request: FetchRequest, context: RequestContext) -> HandlerResponse:
    reader = _make_reader(services, request, context)
    if reader.is_follower:
        services.isolation.note_fetch(reader.broker_id)
        services.fetch_sessions.release_delayed(request.session_id)
        _heed_complaints(services, request)
    session = _begin_session(services, request, reader)
    if session.error:
        outcome = session.finish(())
        return FetchResponse(error_code=outcome.error, session_id=outcome.session_id, responses=[])
    max_bytes = max(0, min(request.max_bytes, services.settings.fetch_bytes_max))
    bytes_missing = min(request.min_bytes, max_bytes)
    reading = read_partitions(services, reader, session.partitions, max_bytes)
    bytes_missing -= reading.read_bytes
    if request.max_wait_ms <= 0 or reading.is_pressing or session.is_empty:
        return _make_response(services, context, session, reading)
    if bytes_missing <= 0 and not _can_pause(services, session, reading):
        return _make_response(services, context, session, reading)
    return _delay(services, request, context, reader, session, reading, max_bytes, bytes_missing)


def _can_pause(services: "Services", session: FetchContext, reading: Reading) -> bool:
    """Returns whether a follower pauses, and nobody waits for what was read for it."""
    if reading.read_bytes >= PAUSE_BYTES_MAX or session.find_pause(services.clock.monotonic_ms()) is None:
        return False
    return session.can_pause(reading.summarize())


def _delay(
    services: "Services",
    request: FetchRequest,
    context: RequestContext,
    reader: Reader,
    session: FetchContext,
    reading: Reading,
    max_bytes: int,
    bytes_missing: int,
) -> PendingResponse:
    """Waits until there is more to read, or something else to say."""
    has_news, paused_until_ms = False, session.find_pause(services.clock.monotonic_ms())
    can_pause = paused_until_ms is not None and session.can_pause(reading.summarize())
    if session.is_in_session:
        active, has_news = session.rest(reading.summarize())
        awaited = reading.list_awaited(reader, active)
    else:
        awaited = reading.list_awaited(reader, reading.partitions)
    reading.close()
    pending, purgatory = PendingResponse(), services.purgatory

    def released() -> None:
        try:
            wanted = session.list_again(services.clock.monotonic_ms())
            again = read_partitions(services, reader, wanted, max_bytes)
            pending.set_result(_make_response(services, context, session, again))
        except Exception as error:
            pending.set_exception(error)

    is_paused = can_pause and (bytes_missing <= 0 or has_news)
    max_wait_ms = request.max_wait_ms
    if reading.is_held_back:
        quota, now_ms = services.replication_quotas.leader, services.clock.monotonic_ms()
        max_wait_ms = min(max_wait_ms, max(1, quota.wait_ms(now_ms)))
    operation = purgatory.add_fetch(
        awaited,
        bytes_missing,
        max_wait_ms,
        released,
        paused_until_ms=paused_until_ms,
        is_paused=is_paused,
    )
    if operation is not None:
        pending.on_cancel = partial(purgatory.cancel, operation)

        def wake(idle: IdlePartition) -> None:
            purgatory.await_also(operation, reader.awaits(idle.partition), idle)

        def overtaken() -> None:
            """The session's next request reads what this one paused with."""
            if operation.is_paused:
                purgatory.cancel(operation)
                pending.set_result(_make_response(services, context, session, Reading()))
            else:
                purgatory.release(operation)

        session.delay(overtaken, wake)
        if has_news and reader.is_follower and not is_paused:
            purgatory.release_soon(operation)
    return pending


# --- the request -------------------------------------------------------------------------------


def _make_reader(services: "Services", request: FetchRequest, context: RequestContext) -> Reader:
    version, state = context.api_version, request.replica_state
    replica_id = request.replica_id
    if version >= REPLICA_STATE_SINCE:
        replica_id = CONSUMER_ID if state is None else state.replica_id
    if replica_id < 0:
        rack, listener = request.rack_id, context.listener
        return Reader(CONSUMER_ID, -1, request.isolation_level, version, rack=rack, listener=listener)
    epoch = authorize_replica(services, replica_id, context)
    if version < REPLICA_STATE_SINCE or state is None:
        raise UnsupportedVersionError(f"a follower fetches with version {REPLICA_STATE_SINCE} or later")
    if state.replica_epoch != epoch:
        raise StaleBrokerEpochError(f"broker {replica_id} has proved another epoch than it claims")
    return Reader(replica_id, epoch, request.isolation_level, version)


def _heed_complaints(services: "Services", request: FetchRequest) -> None:
    """Looks into what a follower could not take: our copy of it may be corrupt."""
    for topic in request.topics:
        for each in topic.partitions:
            if each.unknown_tags and any(tag == CORRUPT_TAG for tag, _ in each.unknown_tags):
                partition = services.partitions.get_by_id(topic.topic_id, each.partition)
                if partition is not None and partition.is_leader:
                    services.partitions.suspect(partition, each.fetch_offset)


def _begin_session(services: "Services", request: FetchRequest, reader: Reader) -> FetchContext:
    by_id = reader.version >= TOPIC_IDS_SINCE
    return services.fetch_sessions.begin(
        request.session_id,
        request.session_epoch,
        partitions=dict(_iterate_wanted(request, by_id)),
        forgotten=_iterate_forgotten(request, by_id) if request.forgotten_topics_data else (),
        traits=SessionTraits(by_id, reader.broker_id, reader.version),
        now_ms=services.clock.monotonic_ms(),
    )


def _iterate_wanted(request: FetchRequest, by_id: bool) -> Iterator[tuple[PartitionKey, FetchSpec]]:
    for topic in request.topics:
        name: str | Uuid = topic.topic_id if by_id else topic.topic
        for each in topic.partitions:
            yield (
                (name, each.partition),
                FetchSpec(
                    each.fetch_offset,
                    each.partition_max_bytes,
                    max(NO_EPOCH, each.current_leader_epoch),
                    max(NO_EPOCH, each.last_fetched_epoch),
                    each.log_start_offset,
                ),
            )


def _iterate_forgotten(request: FetchRequest, by_id: bool) -> Iterator[PartitionKey]:
    for topic in request.forgotten_topics_data:
        name: str | Uuid = topic.topic_id if by_id else topic.topic
        for partition_id in topic.partitions:
            yield name, partition_id


# --- the response --------------------------------------------------------------------------------


def _make_response(
    services: "Services", context: RequestContext, session: FetchContext, reading: Reading
) -> FetchResponse:
    """Returns what was read and there is to say; the regions of the rest are closed."""
    response = FetchResponse(responses=[])
    try:
        response.error_code, response.session_id, keys = session.finish(reading.summarize())
        if reading.throttled_bytes and keys:
            now_ms = services.clock.monotonic_ms()
            services.replication_quotas.leader.record(reading.throttled_bytes, now_ms)
        if reading.is_pressing and context.api_version >= NAMES_LEADER_SINCE:
            _name_leaders(services, context, reading, response, keys)
        _fill(services, reading, response, keys)
    except BaseException:
        close_regions(response)
        raise
    finally:
        reading.close()
    return response


def _fill(services: "Services", reading: Reading, response: FetchResponse, keys: list[PartitionKey]) -> None:
    """Neighbours of one topic stand together."""
    topic: str | Uuid | None = None
    partitions: list[PartitionData] = []
    for key in keys:
        if key[0] != topic:
            topic, partitions = key[0], []
            if isinstance(topic, str):
                response.responses.append(FetchableTopicResponse(topic=topic, partitions=partitions))
            else:
                response.responses.append(FetchableTopicResponse(topic_id=topic, partitions=partitions))
        data = reading.take(key)
        partitions.append(data)
        if data.records:
            services.metrics.fetched(reading.partitions[key].topic, 0, len(data.records))


def _name_leaders(
    services: "Services",
    context: RequestContext,
    reading: Reading,
    response: FetchResponse,
    keys: list[PartitionKey],
) -> None:
    leaders = Leaders(services.partitions, services.metadata.image, context.listener)
    for key in keys:
        data = reading.get(key)
        if data.error_code in _MOVED:
            data.current_leader = LeaderIdAndEpoch(**leaders.of(*key)._asdict())
    response.node_endpoints = [NodeEndpoint(**node._asdict()) for node in leaders.nodes.values()]
