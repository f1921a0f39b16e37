import pytest

from distributedlog.controller.requests import QuorumReply, ReplicaProgress
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import RequestTimedOutError
from distributedlog.model.ids import ZERO_UUID
from distributedlog.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionRequest,
    TopicRequest,
)
from tests.unit.broker.handlers.admin_stage import Broker, versions_of

EVERY = versions_of(DescribeQuorumRequest)
THE_LOG = ("__cluster_metadata", 0)


def ask(broker: Broker, *wanted: tuple[str, int], version: int = EVERY[-1]) -> DescribeQuorumResponse:
    topics = [
        TopicRequest(topic_name=topic, partitions=[PartitionRequest(partition_index=partition)])
        for topic, partition in wanted
    ]
    return broker.ask(DescribeQuorumRequest(topics=topics), version, DescribeQuorumResponse)


def watched() -> Broker:
    broker = Broker(1, 2)
    voters = (ReplicaProgress(1, 70, 1_000, 1_000), ReplicaProgress(9, 68, 900, 800))
    broker.controller.quorum = QuorumReply(1, 4, 69, voters, (ReplicaProgress(2, 60, 700, -1),))
    return broker


@pytest.mark.parametrize("version", EVERY)
def test_every_version_tells_who_keeps_the_log_and_how_far(version: int) -> None:
    broker = watched()
    response = ask(broker, THE_LOG, version=version)
    ((quorum,),) = (topic.partitions for topic in response.topics)
    assert (response.error_code, quorum.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert (quorum.leader_id, quorum.leader_epoch, quorum.high_watermark) == (1, 4, 69)
    voters = [(each.replica_id, each.log_end_offset) for each in quorum.current_voters]
    assert voters == [(1, 70), (9, 68)]
    assert [(each.replica_id, each.log_end_offset) for each in quorum.observers] == [(2, 60)]
    times = [(each.last_fetch_timestamp, each.last_caught_up_timestamp) for each in quorum.current_voters]
    assert times == ([(1_000, 1_000), (900, 800)] if version >= 1 else [(-1, -1), (-1, -1)])
    directories = [each.replica_directory_id for each in quorum.current_voters]
    of_broker = broker.image.brokers[1].log_dirs
    assert directories == [of_broker[0] if version >= 2 and of_broker else ZERO_UUID, ZERO_UUID]
    nodes = [each.node_id for each in response.nodes]
    voters_set = [each.node_id for each in broker.services.settings.controller_quorum_voters]
    assert nodes == (voters_set if version >= 2 else [])


@pytest.mark.parametrize("version", EVERY)
def test_there_is_no_other_quorum(version: int) -> None:
    response = ask(watched(), ("__cluster_metadata", 1), ("orders", 0), version=version)
    codes = [each.error_code for topic in response.topics for each in topic.partitions]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


@pytest.mark.parametrize("version", EVERY)
def test_without_a_controller_the_whole_fails(version: int) -> None:
    broker = watched()
    broker.controller.failure = RequestTimedOutError("nobody leads")
    response = ask(broker, THE_LOG, version=version)
    assert (response.error_code, response.topics) == (ErrorCode.REQUEST_TIMED_OUT, [])
