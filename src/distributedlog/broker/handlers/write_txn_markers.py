"""WriteTxnMarkers: ends transactions in the partitions that this broker leads.

A transaction coordinator sends it to the leaders of all partitions of a transaction, again and again until
each has answered; so a marker that stands in the log already is answered as if it had just been written
(`storage.producers` says when it is one, and when it is late).  Each partition stands for itself, and is
answered when its marker is committed.

    the partition                     its marker
    of a topic                        appended to the log
    of `__consumer_offsets`           written by the coordinator of its groups, whose pending offsets it ends
    of another internal topic         INVALID_TOPIC_EXCEPTION: no transaction writes there
    not here, or led elsewhere        UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER
    a later producer epoch is known   INVALID_PRODUCER_EPOCH
    a later coordinator is known      TRANSACTION_COORDINATOR_FENCED
    too few replicas in sync          NOT_ENOUGH_REPLICAS

A marker that stands in the log ends the verifications of the transactions that it may be of
(`replication.verifications`); one that was refused ends nothing.

Errors of a group's coordinator are answered as NOT_LEADER_OR_FOLLOWER, as in Kafka: who sends markers knows
leaders and no coordinators.

A marker decides what readers see, so not everyone may send one: a broker that has proved to be one
(decision 22), or an administrator who ends a hanging transaction.  As long as nobody authorizes
administrators, that is whoever comes from this very machine; others get CLUSTER_AUTHORIZATION_FAILED.
"""

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from distributedlog.broker.handlers._replica_ids import authorize_replica
from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import HandlerResponse, handles
from distributedlog.broker.net.pending import PendingResponse
from distributedlog.groups.requests import Reply
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import ClusterAuthorizationError, DlogError, InvalidNameError
from distributedlog.model.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC
from distributedlog.ports.executor import Outcome
from distributedlog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from distributedlog.records.control import ControlType, EndMarker, encode_end_marker_batch
from distributedlog.replication.partition import Partition
from distributedlog.statemachine import Producer, TransactionEnd

if TYPE_CHECKING:
    from distributedlog.broker.services import Services

EPOCH_BUMPED_SINCE: Final = 2
"""The version of the transaction protocol from which a marker carries a later epoch than its records."""
OF_COORDINATORS: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


@handles(WriteTxnMarkersRequest, versions=(1, 2))
def write_txn_markers(
    services: "Services", request: WriteTxnMarkersRequest, context: RequestContext
) -> HandlerResponse:
    _authorize(services, context)
    writing = _Writing(services, context)
    response = WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=writing.write_marker(marker),
            )
            for marker in request.markers
        ]
    )
    return writing.respond(response)


def _authorize(services: "Services", context: RequestContext) -> None:
    broker = context.broker
    if broker is not None:
        authorize_replica(services, broker.broker_id, context)
    elif not is_loopback(context.client_host):
        raise ClusterAuthorizationError("markers are taken from brokers, and from this machine")


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class _Writing:
    """The markers of one request: what is appended, and what is waited for."""

    def __init__(self, services: "Services", context: RequestContext) -> None:
        self._services = services
        self._deadline_ms = context.deadline_ms
        self._timeout_ms = services.settings.request_timeout_ms
        self._now_ms = services.clock.wall_ms()
        self._awaited: list[tuple[Partition, int]] = []
        self._waiting: list[WritableTxnMarkerPartitionResult] = []
        self._open_count = 1
        """How many parts are undecided; this method of counting is one of them until all are begun."""
        self._pending: PendingResponse | None = None
        self._response: WriteTxnMarkersResponse | None = None

    def write_marker(self, marker: WritableTxnMarker) -> list[WritableTxnMarkerTopicResult]:
        """Writes one marker to all of its partitions, which get the same bytes."""
        producer = Producer(marker.producer_id, marker.producer_epoch)
        kind = ControlType.COMMIT if marker.transaction_result else ControlType.ABORT
        batch = encode_end_marker_batch(
            EndMarker(kind, marker.coordinator_epoch),
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            timestamp_ms=self._now_ms,
        )
        topics = []
        for topic in marker.topics:
            results = []
            for index in topic.partition_indexes:
                result = WritableTxnMarkerPartitionResult(partition_index=index)
                results.append(result)
                try:
                    self._write(marker, producer, batch, topic.name, result)
                except DlogError as error:
                    result.error_code = error.code
            topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
        return topics

    def _write(
        self,
        marker: WritableTxnMarker,
        producer: Producer,
        batch: bytearray,
        topic: str,
        result: WritableTxnMarkerPartitionResult,
    ) -> None:
        if topic in INTERNAL_TOPICS and topic != OFFSETS_TOPIC:
            raise InvalidNameError(f"no transaction writes to {topic}")
        partition = self._services.partitions.require(topic, result.partition_index)
        has_bumped_epoch = marker.transaction_version >= EPOCH_BUMPED_SINCE
        if partition.is_marker_written(
            *producer, marker.coordinator_epoch, has_bumped_epoch=has_bumped_epoch
        ):
            self._await(partition, partition.log_end_offset, result)
        elif topic == OFFSETS_TOPIC:
            end = TransactionEnd(producer, marker.transaction_result, marker.coordinator_epoch)
            self._end_for_groups(partition, end, result)
        else:
            self._await(partition, partition.append_marker(batch, self._now_ms), result)
        if not result.error_code:  # it stands in the log; what does not is refused by now
            partition.verifications.end(*producer, has_bumped_epoch=has_bumped_epoch)

    def _await(self, partition: Partition, end_offset: int, result: WritableTxnMarkerPartitionResult) -> None:
        self._awaited.append((partition, end_offset))
        self._waiting.append(result)

    def _end_for_groups(
        self, partition: Partition, end: TransactionEnd, result: WritableTxnMarkerPartitionResult
    ) -> None:
        self._open_count += 1

        def done(outcome: Outcome[Reply]) -> None:
            error = outcome.error
            if error is not None:
                code = error.code if isinstance(error, DlogError) else ErrorCode.UNKNOWN_SERVER_ERROR
                result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER if code in OF_COORDINATORS else code
            self._end_part()

        self._services.groups.end_transaction(partition, end, self._deadline_ms, done)

    def respond(self, response: WriteTxnMarkersResponse) -> WriteTxnMarkersResponse | PendingResponse:
        """Returns the response, or one that comes when every marker is committed, or known not to be."""
        self._response = response
        if self._awaited:
            self._open_count += 1
            self._services.purgatory.add_produce(self._awaited, self._timeout_ms, self._committed)
        self._end_part()
        if not self._open_count:
            return response
        self._pending = PendingResponse()
        return self._pending

    def _committed(self, codes: list[ErrorCode]) -> None:
        for result, code in zip(self._waiting, codes, strict=True):
            result.error_code = code
        self._end_part()

    def _end_part(self) -> None:
        self._open_count -= 1
        if not self._open_count and self._pending is not None and not self._pending.is_decided:
            self._pending.set_result(self._response)
