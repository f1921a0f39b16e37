import pytest

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import RequestTimedOutError
from distributedlog.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from tests.unit.broker.handlers.admin_stage import Broker, versions_of

EVERY = versions_of(ElectLeadersRequest)
PREFERRED, UNCLEAN = 0, 1


def ask(
    broker: Broker,
    partitions: dict[str, list[int]] | None,
    election: int = PREFERRED,
    version: int = EVERY[-1],
) -> tuple[ErrorCode, dict[tuple[str, int], ErrorCode]]:
    wanted = None
    if partitions is not None:
        wanted = [TopicPartitions(topic=topic, partitions=each) for topic, each in partitions.items()]
    request = ElectLeadersRequest(election_type=election, topic_partitions=wanted, timeout_ms=2_000)
    response = broker.ask(request, version, ElectLeadersResponse)
    for topic in response.replica_election_results:
        assert all(bool(each.error_code) == bool(each.error_message) for each in topic.partition_result)
    return ErrorCode(response.error_code), {
        (topic.topic, each.partition_id): ErrorCode(each.error_code)
        for topic in response.replica_election_results
        for each in topic.partition_result
    }


def displaced() -> Broker:
    """The leader of a-0 came back and leads no more; b-0 is as it should be."""
    broker = Broker(1, 2)
    broker.create("a", (2, 1))
    broker.create("b", (1, 2))
    broker.silence(2)
    return broker


def returned(broker: Broker) -> None:
    from distributedlog.controller.requests import AlterPartitionsRequest, IsrChange, IsrMember

    broker.stage.heartbeat(2)
    topic_id, partition = broker.image.topic_ids["a"], broker.stage.partition("a")
    change = IsrChange(
        topic_id=topic_id,
        partition_id=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=(IsrMember(1), IsrMember(2, broker.stage.epochs[2])),
    )
    broker.stage.ask(AlterPartitionsRequest(1, broker.stage.epochs[1], (change,)), object)
    broker.controller.catch_up()


@pytest.mark.parametrize("version", EVERY)
def test_every_version_restores_preferred_leaders(version: int) -> None:
    broker = displaced()
    returned(broker)
    assert broker.stage.partition("a").leader == 1
    whole, outcomes = ask(broker, {"a": [0, 7], "b": [0], "c": [0]}, version=version)
    assert whole is ErrorCode.NONE
    assert outcomes == {
        ("a", 0): ErrorCode.NONE,
        ("a", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("b", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("c", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert broker.stage.partition("a").leader == 2


def test_a_topic_that_is_named_without_partitions_is_answered() -> None:
    wanted = [TopicPartitions(topic="a", partitions=[])]
    request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=wanted, timeout_ms=2_000)
    (topic,) = displaced().ask(request, EVERY[-1], ElectLeadersResponse).replica_election_results
    assert (topic.topic, topic.partition_result) == ("a", [])


def test_a_preferred_leader_that_is_away_cannot_be_elected() -> None:
    assert ask(displaced(), {"a": [0]})[1] == {("a", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


@pytest.mark.parametrize("version", EVERY)
def test_of_all_partitions_only_those_that_needed_it_are_told(version: int) -> None:
    broker = displaced()
    returned(broker)
    assert ask(broker, None, version=version) == (ErrorCode.NONE, {("a", 0): ErrorCode.NONE})


def test_an_unclean_election_takes_whom_there_is() -> None:
    broker = Broker(1, 2)
    broker.create("t", (2, 1))
    broker.silence(1)
    broker.silence(1, 2)
    broker.stage.heartbeat(1)
    broker.controller.catch_up()
    assert broker.stage.partition("t").leader == -1
    assert ask(broker, {"t": [0]}, UNCLEAN, version=1)[1] == {("t", 0): ErrorCode.NONE}
    assert broker.stage.partition("t").leader == 1


@pytest.mark.parametrize("version", EVERY)
def test_a_request_that_fails_as_a_whole_fails_for_each_partition(version: int) -> None:
    broker = Broker()
    broker.controller.failure = RequestTimedOutError("late")
    whole, outcomes = ask(broker, {"t": [0, 1]}, version=version)
    assert outcomes == {("t", 0): ErrorCode.REQUEST_TIMED_OUT, ("t", 1): ErrorCode.REQUEST_TIMED_OUT}
    assert whole is (ErrorCode.REQUEST_TIMED_OUT if version >= 1 else ErrorCode.NONE)


def test_an_election_of_no_known_kind_is_refused() -> None:
    assert ask(Broker(), {"t": [0]}, 9) == (
        ErrorCode.INVALID_REQUEST,
        {("t", 0): ErrorCode.INVALID_REQUEST},
    )
