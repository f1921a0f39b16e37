"""Clients that claim what is not theirs: to be a replica, an administrator, the owner of all partitions; and
an internal topic that was poisoned all the same.

A good client writes and reads beside them, and is served as in `test_hostile`.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributedlog.client.admin.admin import Admin, NewTopic
from distributedlog.client.admin.group_offsets import GroupOffsets, OffsetAndMetadata
from distributedlog.groups.records import OffsetRecord, StoredOffset, encode_records
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import DlogError
from distributedlog.model.ids import TopicPartition
from distributedlog.ports.clock import SystemClock
from distributedlog.ports.disk import SystemDisk
from distributedlog.ports.randomness import SystemRandomness
from distributedlog.protocol.framing import decode_response
from distributedlog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from distributedlog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from distributedlog.protocol.messages.produce import ProduceResponse
from distributedlog.records.record import Record, encode_batch
from distributedlog.storage.append import Origin
from distributedlog.storage.store import LogStore
from tests.system.enemies import (
    NOW_MS,
    PRODUCE_VERSION,
    Enemy,
    frame_of,
    produce_request,
    read_frame,
)
from tests.system.hostile_stage import PLAIN, TOPIC, HostileStage
from tests.system.server_process import dlog

OFFSETS = "__consumer_offsets"
SETTINGS = {"offsets.topic.num.partitions": 1}
GROUP, COMMITTED = "billing", 7
FETCH_VERSION, LIST_OFFSETS_VERSION = 12, 7
GREEDY_PARTITIONS = 5_200
"""Three times so many are all but 200 of the 16,000 that a cluster may have, and the topics of the test."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileStage]:
    with HostileStage(tmp_path_factory.mktemp("claims"), SETTINGS) as stage:
        yield stage
        assert "Traceback" not in stage.server.log


def make_group(address: str, offset: int = COMMITTED) -> None:
    """Commits an offset, as soon as the coordinator takes it."""

    async def commit() -> None:
        async with Admin.connect(address) as admin:
            position = OffsetAndMetadata(offset)
            await GroupOffsets(admin.cluster, GROUP).commit({TopicPartition(PLAIN, 0): position})

    asyncio.run(commit())


def committed(address: str) -> int | None:
    async def fetch() -> int | None:
        async with Admin.connect(address) as admin:
            found = (await GroupOffsets(admin.cluster, GROUP).fetch()).get(TopicPartition(PLAIN, 0))
            return None if found is None else found.offset

    return asyncio.run(fetch())


def test_who_says_that_it_is_a_replica_reads_nothing_and_moves_nothing(stage: HostileStage) -> None:
    fetched = FetchRequest(
        replica_id=1, max_wait_ms=0, min_bytes=0,
        topics=[FetchTopic(topic=TOPIC, partitions=[FetchPartition(
            partition=0, fetch_offset=10**9, partition_max_bytes=1 << 20
        )])],
    )  # fmt: skip
    listed = ListOffsetsRequest(
        replica_id=1,
        topics=[
            ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        ],
    )
    with stage.meanwhile("replicas") as seen, Enemy(stage.address, "127.0.6.1") as enemy:
        (connection,) = enemy.connect()
        for _ in range(200):
            _, response = decode_response(
                FetchResponse, FETCH_VERSION, enemy.ask(fetched, FETCH_VERSION, connection)
            )
            assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            (told,) = response.responses[0].partitions
            assert (told.high_watermark, told.records) == (-1, b"")
            _, ends = decode_response(
                ListOffsetsResponse,
                LIST_OFFSETS_VERSION,
                enemy.ask(listed, LIST_OFFSETS_VERSION, connection),
            )
            (partition,) = ends.topics[0].partitions
            assert partition.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    seen.check()


def test_no_name_of_a_client_opens_an_internal_topic(stage: HostileStage) -> None:
    make_group(stage.address)
    with stage.meanwhile("poison") as seen, Enemy(stage.address, "127.0.6.2") as enemy:
        (connection,) = enemy.connect()
        for client_id in ("__admin_client", "__consumer_offsets", "", "dlog"):
            for _ in range(25):
                connection.sendall(frame_of(produce_request(OFFSETS, poison()), PRODUCE_VERSION, client_id))
                _, response = decode_response(ProduceResponse, PRODUCE_VERSION, read_frame(connection))
                (partition,) = response.responses[0].partition_responses
                assert partition.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert committed(stage.address) == COMMITTED
    seen.check()
    assert "dlog_coordinator_unreadable_records 0" in stage.metrics()


def poison() -> bytearray:
    """Records that no coordinator can read: strange values, keys that are cut, and nothing at all."""
    ((key, _),) = encode_records(
        [OffsetRecord(GROUP, TopicPartition(PLAIN, 0), StoredOffset(99, -1, "", NOW_MS, -1))]
    )
    strange = [(key, b"\0\x63"), (key[:5], b""), (b"\0", None), (b"\0\x02\xff", b"\xff" * 9), (key, b"")]
    return encode_batch([Record(value, key, timestamp_ms=NOW_MS) for key, value in strange])


def test_a_poisoned_internal_topic_is_reported_and_can_be_repaired(tmp_path: Path) -> None:
    """Earlier versions stored such records, and a disk that rots may make them."""
    with HostileStage(tmp_path, SETTINGS) as stage:
        make_group(stage.address)
        assert health(stage.address) == []
        assert stage.server.stop() == 0
        poison_directory(tmp_path / "data")
        stage.server.restart()
        assert committed(stage.address) == COMMITTED, "the groups live on"
        make_group(stage.address, COMMITTED + 1)
        ((kind, subject),) = health(stage.address)
        assert (kind, subject) == ("unreadable_records", f"{OFFSETS}-0")
        assert stage.server.stop() == 0
        listed = dlog("log", "repair", str(tmp_path / "data"), "--check")
        assert listed.returncode == 1
        assert "5 records to drop" in listed.stdout
        repaired = dlog("log", "repair", str(tmp_path / "data"))
        assert (repaired.returncode, repaired.stderr) == (0, "")
        stage.server.restart()
        assert health(stage.address) == []
        assert committed(stage.address) == COMMITTED + 1


def poison_directory(directory: Path) -> None:
    store = LogStore.open(SystemDisk(), str(directory), clock=SystemClock(), randomness=SystemRandomness())
    log = store.log(OFFSETS)
    assert log is not None
    log.append_as_leader(poison(), leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    store.close()


def health(address: str) -> list[tuple[str, str]]:
    shown = dlog("cluster", "health", "--bootstrap", address, "-o", "json")
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    found = [(row["kind"], row["subject"]) for row in rows if row["type"] == "problem"]
    assert shown.returncode == (1 if found else 0), shown
    return [each for each in found if each[0] != "disk_full"]


def test_who_takes_all_partitions_leaves_some_for_groups(tmp_path: Path) -> None:
    """The broker is its own: it makes the logs of fifteen thousand partitions meanwhile."""

    async def take(address: str) -> list[ErrorCode]:
        codes = []
        async with Admin.connect(address) as admin:
            for number in range(4):
                try:
                    await admin.create_topic(NewTopic(f"greedy-{number}", GREEDY_PARTITIONS, 1))
                    codes.append(ErrorCode.NONE)
                except DlogError as error:
                    codes.append(error.code)
        return codes

    with HostileStage(tmp_path, SETTINGS) as stage:
        with stage.meanwhile("greed") as seen:
            taken = asyncio.run(take(stage.address))
            assert taken[:3] == [ErrorCode.NONE] * 3
            assert taken[3] != ErrorCode.NONE
            make_group(stage.address)
            assert committed(stage.address) == COMMITTED
        seen.check()
