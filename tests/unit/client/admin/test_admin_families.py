"""Administration in front of brokers that refuse, lose their leaders, or are not there.

What it does on a broker that works is the subject of `tests/unit/broker/test_node_admin.py`.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from distributedlog.client.admin.admin import Admin
from distributedlog.client.admin.blocking import BlockingAdmin
from distributedlog.client.admin.configs import (
    CLUSTER_DEFAULT,
    ConfigEdit,
    ConfigOf,
    edits,
    of_broker,
    of_topic,
)
from distributedlog.client.admin.quotas import QuotaChange, QuotaEntity
from distributedlog.model.config_ops import ConfigOp
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    BrokerError,
    ConnectionLostError,
    DlogError,
    InvalidRequestError,
    RequestTimedOutError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.api_keys import ApiKey
from distributedlog.protocol.messages import alter_client_quotas as alter_quotas
from distributedlog.protocol.messages import elect_leaders as elect
from distributedlog.protocol.messages import incremental_alter_configs as alter_configs
from distributedlog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from distributedlog.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from distributedlog.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from distributedlog.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from distributedlog.protocol.schema import Message, VersionRange
from tests.unit.client.stage import NODE_ID, QUICK, Answer, HangUp, ScriptedBroker, run

PLACES = [TopicPartition("orders", index) for index in range(2)]
VERSIONS: dict[ApiKey, VersionRange] = {
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.LIST_GROUPS: (0, 4),
}


@contextmanager
def scripted(**answers: Answer) -> Iterator[tuple[BlockingAdmin, ScriptedBroker]]:
    """`create_partitions=...` answers that API."""
    broker = ScriptedBroker(
        answers={ApiKey[name.upper()]: answer for name, answer in answers.items()},
        topics={"orders": 2},
        versions={ApiKey[name.upper()]: VERSIONS[ApiKey[name.upper()]] for name in answers},
    )
    with broker.running(), BlockingAdmin(broker.bootstrap, QUICK) as admin:
        yield admin, broker


def in_turn(*codes: int) -> Callable[[], int]:
    """The codes one after the other, and then success."""
    left = iter(codes)
    return lambda: next(left, 0)


def test_more_partitions_are_asked_for_again_if_it_was_not_the_controller() -> None:
    code = in_turn(ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER)

    def answer(request: CreatePartitionsRequest, version: int) -> Message:
        results = [CreatePartitionsTopicResult(name=each.name, error_code=code()) for each in request.topics]
        return CreatePartitionsResponse(results=results)

    with scripted(create_partitions=answer) as (admin, broker):
        assert admin.create_partitions({"orders": 4}) == {"orders": None}
        assert broker.count(ApiKey.CREATE_PARTITIONS) == 3


def test_nothing_is_asked_twice_after_a_connection_was_lost() -> None:
    def hang_up(*_: object) -> None:
        raise HangUp

    with scripted(create_partitions=hang_up, alter_client_quotas=hang_up) as (admin, broker):
        with pytest.raises(ConnectionLostError):
            admin.create_partitions({"orders": 4})
        with pytest.raises(ConnectionLostError):
            admin.alter_quotas([QuotaChange(QuotaEntity(user="ann"), {"producer_byte_rate": 1.0})])
        assert broker.count(ApiKey.CREATE_PARTITIONS) == broker.count(ApiKey.ALTER_CLIENT_QUOTAS) == 1


def test_deletion_goes_on_with_those_that_are_not_done_and_tells_why_the_others_are_not() -> None:
    codes = {0: in_turn(), 1: in_turn(ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.POLICY_VIOLATION)}
    asked: list[list[int]] = []

    def answer(request: DeleteRecordsRequest, version: int) -> Message:
        asked.append([each.partition_index for topic in request.topics for each in topic.partitions])
        return DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    name=topic.name,
                    partitions=[
                        DeleteRecordsPartitionResult(
                            partition_index=each.partition_index,
                            low_watermark=each.offset,
                            error_code=codes[each.partition_index](),
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    with scripted(delete_records=answer) as (admin, _):
        outcomes = admin.delete_records(dict.fromkeys(PLACES, 7))
        assert asked == [[0, 1], [1]]
        assert outcomes[PLACES[0]] == 7
        assert "POLICY_VIOLATION" in str(outcomes[PLACES[1]])


def test_records_of_a_topic_that_is_not_there_are_not_waited_for() -> None:
    with scripted(delete_records=lambda request, version: None) as (admin, broker):
        nowhere = TopicPartition("nowhere", 0)
        outcome = admin.delete_records({nowhere: 1})[nowhere]
        assert isinstance(outcome, UnknownTopicError)
        assert broker.count(ApiKey.DELETE_RECORDS) == 0


def test_what_a_broker_does_not_serve_is_the_outcome_of_all() -> None:
    broker = ScriptedBroker(topics={"orders": 2})
    with broker.running(), BlockingAdmin(broker.bootstrap, QUICK) as admin:
        outcomes = admin.delete_records(dict.fromkeys(PLACES, 7))
        assert all(isinstance(outcome, UnsupportedVersionError) for outcome in outcomes.values())
        altered = admin.alter_configs({of_topic("orders"): edits({"retention.ms": "1"})})
        assert all(isinstance(outcome, UnsupportedVersionError) for outcome in altered.values())
        directories = admin.describe_log_dirs()
        assert isinstance(directories[NODE_ID], UnsupportedVersionError)
        with pytest.raises(UnsupportedVersionError):
            admin.describe_quorum()
        assert admin.describe_configs(of_topic("orders")) is None


def config_answer(asked: list[list[ConfigOf]]) -> Answer:
    def answer(request: alter_configs.IncrementalAlterConfigsRequest, version: int) -> Message:
        whose = [ConfigOf(each.resource_type, each.resource_name) for each in request.resources]
        asked.append(whose)
        return alter_configs.IncrementalAlterConfigsResponse(
            responses=[
                alter_configs.AlterConfigsResourceResponse(resource_type=each.kind, resource_name=each.name)
                for each in whose
            ]
        )

    return answer


def test_brokers_are_told_themselves_and_all_else_goes_to_one() -> None:
    asked: list[list[ConfigOf]] = []
    mine, absent = of_broker(NODE_ID), of_broker(77)
    with scripted(incremental_alter_configs=config_answer(asked)) as (admin, _):
        change = (ConfigEdit("log.retention.ms", ConfigOp.SET, "1"),)
        wanted = dict.fromkeys([of_topic("a"), mine, CLUSTER_DEFAULT, of_topic("b")], change)
        assert admin.alter_configs(wanted) == dict.fromkeys(wanted)
        assert asked == [[of_topic("a"), CLUSTER_DEFAULT, of_topic("b")], [mine]]
        nobody = ConfigOf(mine.kind, "me")
        assert isinstance(admin.alter_configs({nobody: change})[nobody], InvalidRequestError)
    quick = replace(QUICK, call_timeout_ms=50)
    with (
        scripted(incremental_alter_configs=config_answer(asked)) as (_, broker),
        BlockingAdmin(broker.bootstrap, quick) as admin,
    ):
        assert isinstance(admin.alter_configs({absent: change})[absent], DlogError)


def test_an_election_that_fails_as_a_whole_is_raised_and_each_outcome_told() -> None:
    code = in_turn(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def answer(request: elect.ElectLeadersRequest, version: int) -> Message:
        assert request.topic_partitions is not None
        results = [
            elect.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    elect.PartitionResult(partition_id=index, error_code=84 * (index > 0))
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions
        ]
        return elect.ElectLeadersResponse(error_code=code(), replica_election_results=results)

    with scripted(elect_leaders=answer) as (admin, _):
        with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
            admin.elect_leaders(PLACES)
        outcomes = admin.elect_leaders(PLACES, unclean=True)
        assert outcomes[PLACES[0]] is None
        assert "ELECTION_NOT_NEEDED" in str(outcomes[PLACES[1]])


def test_a_quorum_without_a_word_about_it_is_an_error() -> None:
    def answer(request: DescribeQuorumRequest, version: int) -> Message:
        return DescribeQuorumResponse(topics=[])

    with scripted(describe_quorum=answer) as (admin, _), pytest.raises(BrokerError, match="says nothing"):
        admin.describe_quorum()


def test_quotas_travel_with_defaults_as_nulls() -> None:
    seen: list[Any] = []

    def answer(request: alter_quotas.AlterClientQuotasRequest, version: int) -> Message:
        seen.extend(
            ({part.entity_type: part.entity_name for part in each.entity}, each.ops)
            for each in request.entries
        )
        results = [alter_quotas.EntryResult(entity=each.entity) for each in request.entries]
        return alter_quotas.AlterClientQuotasResponse(entries=results)

    both, default = QuotaEntity("ann", "app"), QuotaEntity(user="", client_id="app")
    with scripted(alter_client_quotas=answer) as (admin, _):
        changes = [QuotaChange(both, {"producer_byte_rate": 5.0}), QuotaChange(default, {"x": None})]
        assert admin.alter_quotas(changes) == {both: None, default: None}
    assert [parts for parts, _ in seen] == [
        {"user": "ann", "client-id": "app"},
        {"user": None, "client-id": "app"},
    ]
    assert [(op.key, op.value, op.remove) for _, ops in seen for op in ops] == [
        ("producer_byte_rate", 5.0, False),
        ("x", 0.0, True),
    ]
    assert str(default) == "user=<default> client-id=app"


def test_a_broker_that_throttles_is_given_as_much_more_time() -> None:
    """The first answer says for how long nothing is read; what is asked meanwhile is not late before that."""
    answers = iter([ListGroupsResponse(throttle_time_ms=300, groups=[])])

    async def story(bootstrap: str) -> None:
        loop = asyncio.get_running_loop()
        async with Admin.connect(bootstrap, QUICK) as admin:
            connection = await admin.cluster.any_connection()
            request = ListGroupsRequest()
            await connection.call(request, ListGroupsResponse, timeout_ms=5_000)
            began_s = loop.time()
            with pytest.raises(RequestTimedOutError):
                await connection.call(request, ListGroupsResponse, timeout_ms=200)
            assert loop.time() - began_s >= 0.3

    with scripted(list_groups=lambda request, version: next(answers, None)) as (_, broker):
        run(story(broker.bootstrap))
