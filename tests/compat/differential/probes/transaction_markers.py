"""WriteTxnMarkers: markers as coordinators send them, and as `kafka-transactions abort` does."""

from typing import Any, Final

from distributedlog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.compat.differential.asking import Conversation
from tests.compat.differential.probes.transactions import ask_what_is_read, begin, init
from tests.compat.differential.registry import probe

VERSION_OF_EPOCHS_SINCE: Final = 2
"""The version of WriteTxnMarkers from which a marker says which transaction protocol it belongs to."""


def marker(producer_id: int, *topics: tuple[str, list[int]], **more: Any) -> WritableTxnMarker:
    fields: dict[str, Any] = {
        "producer_id": producer_id,
        "producer_epoch": 0,
        "transaction_result": True,
        "topics": [WritableTxnMarkerTopic(name=name, partition_indexes=which) for name, which in topics],
        "coordinator_epoch": 0,
    }
    return WritableTxnMarker(**(fields | more))


@probe(WriteTxnMarkersRequest)
def written(of: Conversation, version: int) -> None:
    name, topic = of.name("tx"), of.topic(2)
    producer = init(of, name)
    here = topic.name, [0]
    begin(of, name, producer, topic)

    def ask(label: str, *markers: WritableTxnMarker) -> None:
        of.ask(label, WriteTxnMarkersRequest(markers=list(markers)), version)

    def of_it(**more: Any) -> WritableTxnMarker:
        return marker(producer.producer_id, here, **more)

    ask("none")
    ask("a commit, coordinator 5", of_it(coordinator_epoch=5))
    ask_what_is_read(of, "after a commit", topic)
    ask("the commit again", of_it(coordinator_epoch=5))
    ask("of a coordinator before", of_it(coordinator_epoch=4))
    ask("of a later epoch, an abort", of_it(producer_epoch=3, transaction_result=False, coordinator_epoch=5))
    ask("of an epoch before", of_it(coordinator_epoch=5))
    ask_what_is_read(of, "in the end", topic)


@probe(WriteTxnMarkersRequest)
def written_where_something_is_wrong(of: Conversation, version: int) -> None:
    topic = of.topic(2)

    def ask(label: str, *markers: WritableTxnMarker) -> None:
        of.ask(label, WriteTxnMarkersRequest(markers=list(markers)), version)

    ask("no topic", marker(4711))
    ask("a topic without partitions", marker(4711, (topic.name, [])))
    ask("a topic that is not there", marker(4711, (of.name("gone"), [0])))
    ask("a partition that is not there", marker(4711, (topic.name, [7])))
    ask("a negative partition", marker(4711, (topic.name, [-1])))
    ask("one that is there beside one that is not", marker(4711, (topic.name, [0, 7])))
    ask("two producers", marker(4712, (topic.name, [0])), marker(4713, (topic.name, [1])))
    ask("of a producer that never wrote, an abort", marker(4714, (topic.name, [1]), transaction_result=False))
    ask("a topic of groups", marker(4715, ("__consumer_offsets", [0])))
    ask_what_is_read(of, "in the end", topic)


@probe(WriteTxnMarkersRequest, since=VERSION_OF_EPOCHS_SINCE)
def written_with_an_epoch_of_their_own(of: Conversation, version: int) -> None:
    name, topic = of.name("tx"), of.topic()
    producer = init(of, name)
    begin(of, name, producer, topic)

    def ask(label: str, epoch: int, transaction_version: int = 2) -> None:
        wanted = marker(
            producer.producer_id,
            (topic.name, [0]),
            producer_epoch=epoch,
            transaction_version=transaction_version,
        )
        of.ask(label, WriteTxnMarkersRequest(markers=[wanted]), version)

    ask("the epoch of the records", 0)
    ask("the next epoch", 1)
    ask("the next epoch, again", 1)
    ask("a version that is none", 2, transaction_version=9)
    ask_what_is_read(of, "in the end", topic)
