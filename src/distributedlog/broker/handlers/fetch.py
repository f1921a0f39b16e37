"""Fetch: record batches from an offset on, of several partitions.

    enough can be read, or nothing must be waited for    answered at once
    else                                                 parked; released by `delayed`, then read anew

What must not be waited for: a request without partitions or with a wait of 0, a partition with an error, a
follower that must truncate.  While it is parked a request holds no file open.

Records go from file to socket: the answer holds regions, and whoever drops an answer closes them
(`_fetch_reading`, `outgoing`).

Sessions (from version 7, `fetch_sessions`) decide which partitions are read, and which of them there is
something to say of.  Topics are named in versions up to 12, and have ids from 13 on.  From 16 on a partition
that is led elsewhere says where.  No reader is sent to a nearer replica.

A follower is a reader with a replica id: its fetch offsets say what it has stored, and so may commit
something.  It is not asked for its authority yet; a broker that has no replica is refused.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from distributedlog.broker.context import RequestContext
from distributedlog.broker.dispatch import Answer, handles
from distributedlog.broker.fetch_sessions import FetchContext, FetchPartition, PartitionKey
from distributedlog.broker.handlers._fetch_reading import UNKNOWN_OFFSET, Reader, Reading, read_partitions
from distributedlog.broker.handlers._leaders import Leaders
from distributedlog.broker.handlers._parking import ParkedAnswer
from distributedlog.broker.outgoing import close_regions
from distributedlog.model.error_codes import ErrorCode
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


def _refuse(request: FetchRequest, context: RequestContext, code: ErrorCode, text: str) -> FetchResponse:
    """For each partition where the response may have no code for the whole."""
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


@handles(FetchRequest, versions=(4, 17), refuse=_refuse, patience_ms=lambda request: request.max_wait_ms)
def fetch(services: "Services", request: FetchRequest, context: RequestContext) -> Answer:
    reader = _reader(request, context)
    session = _begin(services, request, reader)
    if session.error:
        outcome = session.finish(())
        return FetchResponse(error_code=outcome.error, session_id=outcome.session_id, responses=[])
    max_bytes = max(0, min(request.max_bytes, services.settings.fetch_bytes_max))
    bytes_missing = min(request.min_bytes, max_bytes)
    wanted = list(session.partitions.items())
    reading = read_partitions(services, reader, wanted, max_bytes)
    bytes_missing -= reading.read_bytes
    if bytes_missing <= 0 or request.max_wait_ms <= 0 or reading.is_pressing or not wanted:
        return _answer(services, context, session, reading)
    awaited = reading.awaited(reader)
    reading.close()
    answer = ParkedAnswer(services.delayed)

    def released() -> None:
        answer.parked = None
        try:
            again = read_partitions(services, reader, wanted, max_bytes)
            answer.set_result(_answer(services, context, session, again))
        except Exception as error:
            answer.set_exception(error)

    answer.parked = services.delayed.fetch(awaited, bytes_missing, request.max_wait_ms, released)
    return answer


# --- the request -------------------------------------------------------------------------------


def _reader(request: FetchRequest, context: RequestContext) -> Reader:
    version = context.api_version
    if version < REPLICA_STATE_SINCE:
        return Reader(request.replica_id, -1, request.isolation_level, version)
    state = request.replica_state
    if state is None:
        return Reader(-1, -1, request.isolation_level, version)
    return Reader(state.replica_id, state.replica_epoch, request.isolation_level, version)


def _begin(services: "Services", request: FetchRequest, reader: Reader) -> FetchContext:
    by_id = reader.version >= TOPIC_IDS_SINCE
    return services.fetch_sessions.begin(
        request.session_id,
        request.session_epoch,
        partitions=dict(_wanted(request, by_id)),
        forgotten=_forgotten(request, by_id) if request.forgotten_topics_data else (),
        uses_topic_ids=by_id,
        is_follower=reader.is_follower,
        now_ms=services.clock.monotonic_ms(),
    )


def _wanted(request: FetchRequest, by_id: bool) -> Iterator[tuple[PartitionKey, FetchPartition]]:
    for topic in request.topics:
        name: str | Uuid = topic.topic_id if by_id else topic.topic
        for each in topic.partitions:
            yield (
                (name, each.partition),
                FetchPartition(
                    each.fetch_offset,
                    each.partition_max_bytes,
                    each.current_leader_epoch,
                    each.last_fetched_epoch,
                    each.log_start_offset,
                ),
            )


def _forgotten(request: FetchRequest, by_id: bool) -> Iterator[PartitionKey]:
    for topic in request.forgotten_topics_data:
        name: str | Uuid = topic.topic_id if by_id else topic.topic
        for partition_id in topic.partitions:
            yield name, partition_id


# --- the answer --------------------------------------------------------------------------------


def _answer(
    services: "Services", context: RequestContext, session: FetchContext, reading: Reading
) -> FetchResponse:
    """What was read and there is to say; the regions of the rest are closed."""
    response = FetchResponse(responses=[])
    try:
        response.error_code, response.session_id, keys = session.finish(reading.told())
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
    leaders = Leaders(services, context.listener)
    for key in keys:
        data = reading.look_at(key)
        if data.error_code in _MOVED:
            data.current_leader = LeaderIdAndEpoch(**leaders.of(*key)._asdict())
    response.node_endpoints = [NodeEndpoint(**node._asdict()) for node in leaders.nodes.values()]
