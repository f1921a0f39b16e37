"""Administration from end to end: our own client, a whole node, and what it does with what it is told."""

import asyncio
from pathlib import Path

import pytest

from distributedlog.client.admin.admin import Admin, NewTopic
from distributedlog.client.admin.configs import CLUSTER_DEFAULT, ConfigSource, edits, of_broker, of_topic
from distributedlog.client.admin.quotas import QuotaChange, QuotaComponent, QuotaEntity, QuotaMatch
from distributedlog.client.admin.topics import UP_TO_THE_END
from distributedlog.client.consumer import Consumer
from distributedlog.client.producer import Producer
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import (
    ConfigError,
    DlogError,
    InvalidPartitionsError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from distributedlog.model.ids import TopicPartition
from distributedlog.records.record import Record
from tests.unit.broker.node_stage import admin_of
from tests.unit.client.stage import run

FIRST = TopicPartition("orders", 0)
NODE_ID = 1
VALUE = b"v" * 100
RECORD = Record(VALUE)
TIMEOUT_MS = 5_000


async def filled(admin: Admin, records: int = 10) -> None:
    await admin.create_topic(NewTopic("orders", 2))
    async with Producer(admin.cluster) as producer:
        for _ in range(records):
            await producer.send("orders", RECORD, 0)


def test_a_cluster_tells_of_its_disk_its_producers_and_its_quorum(tmp_path: Path) -> None:
    async def story() -> None:
        async with admin_of(tmp_path) as admin:
            await filled(admin)
            (directories,) = (await admin.describe_log_dirs()).values()
            assert isinstance(directories, tuple)
            (directory,) = directories
            assert directory.path == str(tmp_path / "data")
            assert directory.error is ErrorCode.NONE
            assert set(directory.replicas) == {FIRST, TopicPartition("orders", 1)}
            assert directory.replicas[FIRST].size_bytes > 10 * len(VALUE)
            assert directory.replicas[FIRST].offset_lag == 0
            assert 0 < directory.usable_bytes <= directory.total_bytes
            sizes = await admin.log_sizes(await admin.describe_topics(["orders"]))
            assert sizes is not None
            assert sizes[TopicPartition("orders", 1)] == 0
            (only,) = (await admin.describe_log_dirs([NODE_ID], [FIRST])).values()
            assert isinstance(only, tuple)
            assert list(only[0].replicas) == [FIRST]

            (producer,) = await admin.describe_producers(FIRST)
            assert (producer.last_sequence, producer.transaction_start_offset) == (9, -1)
            with pytest.raises(UnknownTopicError):
                await admin.describe_producers(TopicPartition("nothing", 0))

            quorum = await admin.describe_quorum()
            (voter,) = quorum.voters
            assert quorum.leader_id == voter.node_id == NODE_ID
            assert quorum.lag(voter) == 0
            assert quorum.high_watermark > 0
            assert voter.last_caught_up_ms > 0

            features = await admin.describe_features()
            assert (
                features.finalized["dlog.metadata.version"]
                == features.supported["dlog.metadata.version"].high
            )
            await admin.update_features(
                {"dlog.metadata.version": features.finalized["dlog.metadata.version"]}
            )
            with pytest.raises(DlogError, match="time"):
                await admin.update_features({"time.travel": 1})

    run(story())


def test_partitions_are_added_records_deleted_and_leaders_elected(tmp_path: Path) -> None:
    async def story() -> None:
        async with admin_of(tmp_path) as admin:
            await filled(admin)
            assert await admin.create_partitions({"orders": 3}) == {"orders": None}
            (topic,) = await admin.describe_topics(["orders"])
            assert len(topic.partitions) == 3
            outcome = (await admin.create_partitions({"orders": 2}))["orders"]
            assert isinstance(outcome, InvalidPartitionsError)
            missing = (await admin.create_partitions({"none": 2}, validate_only=True))["none"]
            assert isinstance(missing, UnknownTopicError)

            assert await admin.delete_records({FIRST: 4}) == {FIRST: 4}
            beyond = await admin.delete_records({FIRST: 99, TopicPartition("orders", 2): UP_TO_THE_END})
            assert isinstance(beyond[FIRST], OffsetOutOfRangeError)
            nowhere = TopicPartition("nowhere", 0)
            assert isinstance((await admin.delete_records({nowhere: 1}))[nowhere], UnknownTopicError)
            assert beyond[TopicPartition("orders", 2)] == 0
            assert await admin.delete_records({FIRST: UP_TO_THE_END}) == {FIRST: 10}
            (topic,) = await admin.describe_topics(["orders"])
            assert (await admin.offset_ranges([topic]))[FIRST] == (10, 10)

            elected = await admin.elect_leaders([FIRST])
            assert str(elected[FIRST]).endswith("(ELECTION_NOT_NEEDED)")
            assert await admin.elect_leaders() == {}

    run(story())


def test_settings_are_told_altered_and_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with admin_of(tmp_path) as admin:
            await filled(admin, 1)
            topic, broker = of_topic("orders"), of_broker(NODE_ID)
            outcome = await admin.alter_configs(
                {
                    topic: edits({"retention.ms": "5000"}),
                    broker: edits({"log.retention.bytes": "77"}),
                    CLUSTER_DEFAULT: edits({"log.segment.bytes": "1048576"}),
                }
            )
            assert outcome == {topic: None, broker: None, CLUSTER_DEFAULT: None}
            entries = await admin.describe_configs(topic, with_documentation=True)
            assert entries is not None
            told = {each.name: each for each in entries}
            assert told["retention.ms"].value == "5000"
            assert told["retention.ms"].is_set_on_topic
            assert told["retention.bytes"].value == "77"
            assert told["segment.bytes"].value == "1048576"
            assert all(each.documentation for each in entries)
            assert told["retention.ms"].synonyms[0].value == "5000"
            (one,) = await admin.describe_configs(broker, ["log.retention.bytes"]) or ()
            assert (one.value, one.source) == ("77", ConfigSource.BROKER)
            resources = await admin.list_config_resources()
            assert {topic, broker, CLUSTER_DEFAULT} <= set(resources) | {CLUSTER_DEFAULT}

            wrong = await admin.alter_configs({topic: edits({"retention.ms": "soon"})})
            assert isinstance(wrong[topic], ConfigError)
            trial = await admin.alter_configs({topic: edits({"retention.ms": "1"})}, validate_only=True)
            assert trial == {topic: None}
            assert await admin.alter_configs({topic: edits(to_unset=["retention.ms"])}) == {topic: None}
            nobody = of_topic("nobody")
            assert isinstance(
                (await admin.alter_configs({nobody: edits({"retention.ms": "1"})}))[nobody], UnknownTopicError
            )
            after = {each.name: each for each in await admin.describe_configs(topic) or ()}
            assert not after["retention.ms"].is_set_on_topic

    run(story())


def test_quotas_are_set_told_and_removed(tmp_path: Path) -> None:
    async def story() -> None:
        async with admin_of(tmp_path) as admin:
            await filled(admin, 1)
            anybody, ann = QuotaEntity(user=""), QuotaEntity(user="ann", client_id="")
            wrong = QuotaEntity(client_id="x")
            outcome = await admin.alter_quotas(
                [
                    QuotaChange(anybody, {"request_percentage": 200.0, "consumer_byte_rate": 1e9}),
                    QuotaChange(ann, {"producer_byte_rate": 5000}),
                    QuotaChange(wrong, {"speed": 1.0}),
                ]
            )
            assert (outcome[anybody], outcome[ann]) == (None, None)
            assert isinstance(outcome[wrong], InvalidRequestError)
            all_of_them = {
                anybody: {"request_percentage": 200.0, "consumer_byte_rate": 1e9},
                ann: {"producer_byte_rate": 5000.0},
            }
            assert await admin.describe_quotas() == all_of_them
            assert await admin.describe_quotas([QuotaComponent("user", QuotaMatch.EXACT, "ann")]) == {
                ann: all_of_them[ann]
            }
            assert await admin.describe_quotas([QuotaComponent("user")], strict=True) == {
                anybody: all_of_them[anybody]
            }
            assert await admin.describe_quotas([QuotaComponent("user", QuotaMatch.DEFAULT)]) == {
                anybody: all_of_them[anybody]
            }
            with pytest.raises(InvalidRequestError):
                await admin.describe_quotas([QuotaComponent("user"), QuotaComponent("user")])
            trial = [QuotaChange(anybody, {"request_percentage": None})]
            assert await admin.alter_quotas(trial, validate_only=True) == {anybody: None}
            gone = [QuotaChange(anybody, {"request_percentage": None, "consumer_byte_rate": None})]
            assert await admin.alter_quotas(gone) == {anybody: None}
            assert await admin.describe_quotas() == {ann: all_of_them[ann]}

    run(story())


@pytest.mark.parametrize("key", ["producer_byte_rate", "consumer_byte_rate"])
def test_who_used_ten_seconds_worth_waits_for_what_is_above_it(tmp_path: Path, key: str) -> None:
    async def story() -> None:
        async with admin_of(tmp_path) as admin:
            await admin.create_topic(NewTopic("orders", 2))
            limit = 10_000
            await admin.alter_quotas([QuotaChange(QuotaEntity(user="ANONYMOUS"), {key: limit})])
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            async with Producer(admin.cluster) as producer:
                await (await producer.send("orders", Record(b"x" * (10 * limit + 2_000)), 0)).wait()
            if key == "consumer_byte_rate":
                began_s = loop.time()
            async with Consumer(admin.cluster) as consumer:
                consumer.seek({FIRST: 0})
                assert await consumer.poll(TIMEOUT_MS)
            await admin.list_topics()  # on the same connection, which is muted meanwhile
            assert loop.time() - began_s >= 0.2

    run(story())
