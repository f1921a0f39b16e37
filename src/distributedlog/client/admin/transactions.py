"""Transactions: which there are, what one is at, and those that hang.

Every broker knows the transactional ids that it coordinates, so a list is whole only when all have responded.
A transaction *hangs* in a partition when the leader has it open and no coordinator knows of it: nobody would
ever end it, and readers of committed records stop there.  Brokers that verify a transaction before its first
record let none of these come about; a marker that an administrator sends ends one that is there.
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from distributedlog.client.admin.log_dirs import ProducerView, describe_producers
from distributedlog.client.coordinators import TRANSACTION_KEY, Coordinator
from distributedlog.client.errors import check_response
from distributedlog.client.metadata import Cluster
from distributedlog.client.sinks import Sink, SinkView
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from distributedlog.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from distributedlog.protocol.messages.sink_transaction import SINK_ID_PREFIX
from distributedlog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

NO_OFFSET: Final = -1
STATES: Final = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


class TransactionListing(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


class TransactionView(NamedTuple):
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition."""

    partition: TopicPartition
    producer: ProducerView


class TransactionAdmin:
    """Works on a cluster that it is given."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    # --- by coordinators -----------------------------------------------------------------------

    async def list_transactions(
        self, *, states: Collection[str] = (), producer_ids: Collection[int] = ()
    ) -> tuple[TransactionListing, ...]:
        """Lists those of all brokers, by name."""
        brokers = await self._cluster.retrying(self._cluster.brokers)
        found = await asyncio.gather(*(self._list(each.node_id, states, producer_ids) for each in brokers))
        return tuple(sorted({each.transactional_id: each for part in found for each in part}.values()))

    async def _list(
        self, node_id: int, states: Collection[str], producer_ids: Collection[int]
    ) -> list[TransactionListing]:
        request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=list(producer_ids))

        async def attempt() -> ListTransactionsResponse:
            connection = await self._cluster.connection(node_id)
            response = await self._cluster.call(connection, request, ListTransactionsResponse)
            check_response(response.error_code, f"the transactions of broker {node_id}")
            return response

        response = await self._cluster.retrying(attempt)
        return [
            TransactionListing(each.transactional_id, each.producer_id, each.transaction_state, node_id)
            for each in response.transaction_states
        ]

    async def describe_transaction(self, transactional_id: str) -> TransactionView:
        """Raises `TransactionalIdNotFoundError` for an id that is not there."""
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])

        async def attempt() -> TransactionView:
            connection = await Coordinator(self._cluster, TRANSACTION_KEY, transactional_id).connection()
            response = await self._cluster.call(connection, request, DescribeTransactionsResponse)
            (found,) = response.transaction_states
            check_response(found.error_code, f"the transactional id {transactional_id!r}")
            return TransactionView(
                transactional_id,
                found.transaction_state,
                found.producer_id,
                found.producer_epoch,
                found.transaction_timeout_ms,
                found.transaction_start_time_ms,
                tuple(TopicPartition(each.topic, at) for each in found.topics for at in each.partitions),
            )

        return await self._cluster.retrying(attempt)

    async def describe_sink(self, transactional_id: str) -> SinkView | None:
        """Returns the query and the batch behind a transactional id that is a sink's; None for any other."""
        if not transactional_id.startswith(SINK_ID_PREFIX):
            return None
        return await Sink(self._cluster, transactional_id.removeprefix(SINK_ID_PREFIX)).describe()

    # --- by partitions -------------------------------------------------------------------------

    async def find_hanging(
        self, partitions: Iterable[TopicPartition], *, open_ms_min: int, now_ms: int
    ) -> tuple[OpenTransaction, ...]:
        """Returns transactions that are open for so long, and that no coordinator knows of."""
        candidates = [
            OpenTransaction(partition, producer)
            for partition in partitions
            for producer in await describe_producers(self._cluster, partition)
            if producer.transaction_start_offset != NO_OFFSET
            and now_ms - producer.last_timestamp_ms >= open_ms_min
        ]
        return tuple([each for each in candidates if not await self._is_known(each)])

    async def _is_known(self, found: OpenTransaction) -> bool:
        listed = await self.list_transactions(producer_ids=[found.producer.producer_id])
        for each in listed:
            view = await self.describe_transaction(each.transactional_id)
            if found.partition in view.partitions:
                return True
        return False

    async def abort(self, found: OpenTransaction) -> None:
        """Writes the marker that ends it in that partition; only where no coordinator would."""
        producer, partition = found.producer, found.partition
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
            coordinator_epoch=max(producer.coordinator_epoch, 0),
        )
        view = await self._cluster.partition(partition)
        connection = await self._cluster.connection(view.leader_id)
        request = WriteTxnMarkersRequest(markers=[marker])
        response = await self._cluster.call(connection, request, WriteTxnMarkersResponse)
        for result in response.markers:
            for topic in result.topics:
                for each in topic.partitions:
                    check_response(each.error_code, f"the marker for {partition}")
