from pathlib import Path

from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from tests.unit.broker.handlers.data_stage import TOPIC, DataBroker, data_broker
from tests.unit.storage.support import batch_of, value_of


def ask(broker: DataBroker, topic: str = TOPIC, partition: int = 0) -> PartitionResponse:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])])
    response = broker.ask(request, 0, DescribeProducersResponse)
    ((answer,),) = (each.partitions for each in response.topics)
    return answer


def test_producers_are_told_with_where_they_are(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.fill(1)
        assert ask(broker).active_producers == [], "it has no id"
        for sequence in (0, 1):
            data = batch_of([value_of(1)], producer_id=7, producer_epoch=3, base_sequence=sequence)
            assert broker.produce(data).error_code == ErrorCode.NONE
        transactional = batch_of(
            [value_of(1), value_of(2)],
            producer_id=8,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        log = broker.partition.log
        log.append_as_leader(transactional, leader_epoch=0, now_ms=broker.clock.wall_ms())
        broker.settle()
        plain, open_one = sorted(ask(broker).active_producers, key=lambda each: each.producer_id)
        assert (plain.producer_id, plain.producer_epoch, plain.last_sequence) == (7, 3, 1)
        assert (plain.current_txn_start_offset, plain.coordinator_epoch) == (-1, -1)
        assert (open_one.producer_id, open_one.last_sequence) == (8, 1)
        assert open_one.current_txn_start_offset == 3
        assert open_one.last_timestamp > 0


def test_only_the_leader_tells(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        assert ask(broker, "nowhere").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert ask(broker, "no/name").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert ask(broker, partition=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.hand_over()
        answer = ask(broker)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answer.error_message
