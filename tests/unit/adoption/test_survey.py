"""What of Kafka's directories can be taken over; and, where not, what is said."""

import pytest

from distributedlog.adoption.kafka_records import UserSet
from distributedlog.adoption.survey import RemarkKind, Survey, survey
from distributedlog.controller.records import (
    ClientQuotaChanged,
    ConfigChanged,
    PartitionChanged,
    ProducerIdsTaken,
    QuotaEntityPart,
    TopicRemoved,
)
from distributedlog.model.errors import NotAdoptableError
from distributedlog.model.ids import TopicPartition
from distributedlog.protocol.schema import Message
from distributedlog.records.record import Record, encode_batch
from distributedlog.storage.checkpoints import META_PROPERTIES_FILE
from distributedlog.storage.files import Files
from tests.simulation.disk import SimDisk
from tests.unit.adoption.kafka_stage import (
    CLEAN,
    FIRST_LOG,
    GOLDEN,
    KafkaDirectory,
    copy_in,
    put,
    topic_records,
    uuid,
)

ORDERS = uuid(1)
KAFKA = "/kafka"


def told(found: Survey, standing: RemarkKind) -> dict[str, str]:
    return {each.subject: each.message for each in found.remarks if each.kind is standing}


def refused(found: Survey) -> dict[str, str]:
    return told(found, RemarkKind.REFUSED)


def setting(name: str, value: str, topic: str = "orders") -> Message:
    return ConfigChanged(resource_type=2, resource_name=topic, name=name, value=value)


def simple(*more: Message, replicas: tuple[tuple[int, ...], ...] = ((1,),)) -> KafkaDirectory:
    """A broker with the topic `orders`, and whatever else its metadata says."""
    directory = KafkaDirectory(SimDisk(1), KAFKA)
    directory.metadata([*topic_records("orders", ORDERS, replicas), *more])
    for number in range(len(replicas)):
        directory.partition("orders", number, ORDERS)
    return directory


def looked_at(directory: KafkaDirectory, *more: str, **options: object) -> Survey:
    return survey(Files(directory.disk), [directory.path, *more], **options)  # type: ignore[arg-type]


# --- what can be taken -------------------------------------------------------------------------


def test_a_directory_that_kafka_wrote_can_be_taken_whole() -> None:
    disk = SimDisk(1)
    copy_in(disk, CLEAN, KAFKA)
    found = survey(Files(disk), [KAFKA])
    assert not found.refusals
    assert found.is_clean
    assert (found.cluster_id, found.node_id, found.next_producer_id) == ("Z29sZGVuLWNsdXN0ZXItMQ", 1, 1000)
    assert len(found.topics) == 24
    by_name = {topic.name: topic for topic in found.topics}
    assert by_name["epochs"].partitions[0].leader_epoch == 9
    assert by_name["compacted-zstd"].settings["cleanup.policy"] == "compact"
    assert "__consumer_offsets" in by_name
    assert list(told(found, RemarkKind.LEFT)) == ["__transaction_state"]
    notes = told(found, RemarkKind.NOTE)
    assert "not ended, from offset 30 on" in notes["transactions-0"]
    assert notes["epochs"] == "internal.segment.bytes=400 is left out: there is no such setting here"
    assert "--properties" in notes["settings"]


def test_looking_changes_nothing() -> None:
    directory = simple()
    before = directory.disk.files()
    looked_at(directory)
    assert directory.disk.files() == before


def test_several_log_directories_of_a_broker_are_taken_together() -> None:
    disk = SimDisk(1)
    first = KafkaDirectory(disk, "/one", directory_id=uuid(71))
    KafkaDirectory(disk, "/two", directory_id=uuid(72)).partition("orders", 1, ORDERS)
    orders = topic_records("orders", ORDERS, [[1]], directories=[uuid(71)])
    other = topic_records("orders", ORDERS, [[1], [1]], directories=[uuid(72)])[2]
    first.metadata([*orders, other]).partition("orders", 0, ORDERS)
    assert refused(looked_at(first)) == {
        "orders-1": f"it is in another log directory of broker 1, that with directory.id={uuid(72)} in its "
        "meta.properties: name it too"
    }
    both = looked_at(first, "/two")
    assert not both.refusals
    assert [each.path for each in both.partitions] == ["/one/orders-0", "/two/orders-1"]


def test_of_several_brokers_the_best_replica_of_each_partition_is_taken() -> None:
    disk = SimDisk(1)
    records = topic_records("orders", ORDERS, [[1, 2]], isr=[2, 1])
    first = KafkaDirectory(disk, "/one", broker_id=1).metadata(records).partition("orders", 0, ORDERS)
    KafkaDirectory(disk, "/two", broker_id=2).partition("orders", 0, ORDERS)
    assert [each.path for each in looked_at(first, "/two").partitions] == ["/two/orders-0"]  # it led
    assert [each.path for each in looked_at(first).partitions] == ["/one/orders-0"]  # it was in sync


def test_the_longer_of_two_metadata_logs_counts() -> None:
    disk = SimDisk(1)
    records = topic_records("orders", ORDERS, [[1]])
    first = KafkaDirectory(disk, "/one").metadata(records).partition("orders", 0, ORDERS)
    KafkaDirectory(disk, "/two", broker_id=2).metadata([*records, TopicRemoved(topic_id=ORDERS)])
    found = looked_at(first, "/two")
    assert found.topics == []
    assert told(found, RemarkKind.LEFT) == {"/one/orders-0": "is of a topic that was deleted"}


def test_only_the_topics_that_were_asked_for() -> None:
    directory = simple(*topic_records("users", uuid(2), [[1]])).partition("users", 0, uuid(2))
    found = looked_at(directory, topics=["users", "nobody"])
    assert [topic.name for topic in found.topics] == ["users"]
    assert refused(found) == {"nobody": "there is no such topic"}


def test_epochs_in_the_log_are_not_fallen_below() -> None:
    directory = simple()
    put(directory.disk, f"{KAFKA}/orders-0/leader-epoch-checkpoint", b"0\n2\n0 0\n17 2\n")
    assert next(looked_at(directory).partitions).leader_epoch == 17


# --- what cannot -------------------------------------------------------------------------------


def test_a_replica_that_was_not_in_sync_is_refused() -> None:
    disk = SimDisk(1)
    records = topic_records("orders", ORDERS, [[1, 2, 3]], isr=[2, 3])
    directory = KafkaDirectory(disk, KAFKA).metadata(records).partition("orders", 0, ORDERS)
    assert refused(looked_at(directory)) == {
        "orders-0": "the replica of broker 1 may lack records: in sync is 2, 3; name the directory of that "
        "broker too"
    }


def test_a_partition_of_another_broker_is_refused_with_where_it_is() -> None:
    directory = KafkaDirectory(SimDisk(1), KAFKA).metadata(topic_records("orders", ORDERS, [[4, 5]]))
    assert "it is on broker 4, 5: name the directory" in refused(looked_at(directory))["orders-0"]


def test_a_directory_that_should_be_here_and_is_not() -> None:
    directory = KafkaDirectory(SimDisk(1), KAFKA).metadata(topic_records("orders", ORDERS, [[1]]))
    assert (
        refused(looked_at(directory))["orders-0"] == "it should be here, and is not: its directory is missing"
    )


def test_one_partition_that_is_missing_refuses_the_whole_topic() -> None:
    directory = simple(replicas=((1,), (9,)))
    directory.disk.rename(f"{KAFKA}/orders-1", f"{KAFKA}/elsewhere")
    found = looked_at(directory)
    assert list(refused(found)) == ["orders-1"]
    assert found.topics == []


def test_the_log_of_a_deleted_topic_of_the_same_name_is_not_taken_for_it() -> None:
    directory = KafkaDirectory(SimDisk(1), KAFKA).metadata(topic_records("orders", ORDERS, [[1]]))
    directory.partition("orders", 0, uuid(99))
    found = looked_at(directory)
    assert "of another topic, which was deleted" in refused(found)["orders-0"]
    assert told(found, RemarkKind.LEFT) == {f"{KAFKA}/orders-0": "is of a topic that was deleted"}


def test_tiered_topics_and_old_formats_are_refused() -> None:
    directory = simple(
        setting("remote.storage.enable", "true"),
        *topic_records("old", uuid(2), [[1]]),
        setting("retention.ms", "1", "old"),
    )
    batch = bytearray(encode_batch([Record(b"x")]))
    batch[16] = 1
    directory.partition("old", 0, uuid(2))
    put(directory.disk, f"{KAFKA}/old-0/{FIRST_LOG}", bytes(batch))
    found = refused(looked_at(directory))
    assert found["orders"] == "part of it is in tiered storage (remote.storage.enable=true)"
    assert "holds records in format 1, of before Kafka 0.11" in found["old-0"]


# --- settings ----------------------------------------------------------------------------------


def test_settings_that_are_not_possible_are_left_out_one_by_one() -> None:
    directory = simple(
        setting("retention.ms", "77"),
        setting("min.insync.replicas", "2"),
        setting("preallocate", "true"),
        setting("segment.bytes", "-3"),
        setting("cleanup.policy", "compact"),
    )
    found = looked_at(directory)
    assert found.topics[0].settings == {
        "cleanup.policy": "compact",
        "preallocate": "true",
        "retention.ms": "77",
    }
    notes = [each.message for each in found.remarks if each.subject == "orders"]
    assert len(notes) == 2
    assert "min.insync.replicas=2 is left out: there will be one replica" in notes[0]


def test_what_kafka_was_started_with_stands_below_what_was_set_while_it_ran() -> None:
    dynamic = ConfigChanged(resource_type=4, resource_name="", name="log.retention.bytes", value="5")
    own = ConfigChanged(resource_type=4, resource_name="1", name="log.segment.bytes", value="2000000")
    single = ConfigChanged(resource_type=4, resource_name="1", name="min.insync.replicas", value="1")
    foreign = ConfigChanged(resource_type=4, resource_name="2", name="log.segment.bytes", value="1")
    unknown = ConfigChanged(resource_type=4, resource_name="", name="ssl.keystore.password", value="secret")
    directory = simple(dynamic, own, single, foreign, unknown)
    properties = {
        "log.retention.hours": "2",
        "log.retention.bytes": "9",
        "num.partitions": "7",
        "fetch.max.bytes": "2048",
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "listeners": "PLAINTEXT://:9092",
        "zookeeper.connect": "x",
    }
    found = looked_at(directory, properties=properties, node_id=8)
    assert found.broker_settings == {
        "": {"log.retention.ms": "7200000", "log.retention.bytes": "5", "num.partitions": "7"},
        "8": {"log.segment.bytes": "2000000"},
    }
    notes = " | ".join(each.message for each in found.remarks)
    assert "ssl.keystore.password is left out" in notes
    assert "secret" not in notes
    assert "min.insync.replicas of broker 1 is left out: it is the whole cluster's" in notes
    assert "those of broker 2 are left out: log.segment.bytes" in notes
    assert "give these to the node when you start it: fetch.max.bytes" in notes
    assert "--properties" not in notes


def test_quotas_come_along_as_far_as_there_are_such() -> None:
    def quota(kind: str, name: str | None, key: str, value: float) -> Message:
        whom = [QuotaEntityPart(entity_type=kind, entity_name=name)]
        return ClientQuotaChanged(entity=whom, key=key, value=value, remove=False)

    found = looked_at(
        simple(
            quota("client-id", "report", "producer_byte_rate", 1000.0),
            quota("ip", "10.0.0.1", "connection_creation_rate", 5.0),
        )
    )
    assert [(each.entity[0].entity_name, each.key, each.value) for each in found.quotas] == [
        ("report", "producer_byte_rate", 1000.0)
    ]
    assert "connection_creation_rate of ip 10.0.0.1 is left out" in told(found, RemarkKind.LEFT)["quotas"]


# --- the rest ----------------------------------------------------------------------------------


def test_what_else_there_was_is_said() -> None:
    user = UserSet(name="ann", mechanism=1, salt=b"", stored_key=b"", server_key=b"", iterations=1)
    directory = simple(user, ProducerIdsTaken(broker_id=1, next_producer_id=5000)).unclean()
    Files(directory.disk).make_directory(f"{KAFKA}/users-0.abc-delete")
    Files(directory.disk).make_directory(f"{KAFKA}/users-1.abc-future")
    found = looked_at(directory)
    left = told(found, RemarkKind.LEFT)
    assert left["users with passwords (SCRAM)"] == "1 of them are not taken over"
    assert left[f"{KAFKA}/users-0.abc-delete"] == "was being deleted by Kafka"
    assert "unfinished half of a move" in left[f"{KAFKA}/users-1.abc-future"]
    assert "not stopped cleanly" in told(found, RemarkKind.NOTE)[KAFKA]
    assert (found.is_clean, found.next_producer_id) == (False, 5000)


@pytest.mark.parametrize("leader", [1, -1])
def test_a_broker_that_stopped_last_may_lead_again_by_whichever_list_it_stands_in(leader: int) -> None:
    records = topic_records("orders", ORDERS, [[2, 1]], isr=[1])
    stopped = PartitionChanged(
        partition_id=0, topic_id=ORDERS, isr=[], leader=leader, eligible_leader_replicas=[1]
    )
    directory = KafkaDirectory(SimDisk(1), KAFKA).metadata([*records, stopped])
    directory.partition("orders", 0, ORDERS)
    assert [each.partition for each in looked_at(directory).partitions] == [TopicPartition("orders", 0)]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("gone", "there is no directory"),
        ("unformatted", "no log directory of Kafka"),
        ("zookeeper", "keeps its metadata in ZooKeeper"),
        ("ours", "is a node's of dlog already"),
        ("without metadata", "metadata.log.dir"),
    ],
)
def test_a_directory_that_is_no_kafka_brokers_is_refused_with_the_reason(damage: str, says: str) -> None:
    directory = simple()
    disk, files = directory.disk, Files(directory.disk)
    if damage == "gone":
        disk.rename(KAFKA, "/elsewhere")
    elif damage == "unformatted":
        disk.remove(f"{KAFKA}/{META_PROPERTIES_FILE}")
    elif damage == "zookeeper":
        disk.remove(f"{KAFKA}/{META_PROPERTIES_FILE}")
        put(disk, f"{KAFKA}/{META_PROPERTIES_FILE}", b"version=0\nbroker.id=1\ncluster.id=x\n")
    elif damage == "ours":
        files.make_directory(f"{KAFKA}/__cluster_metadata")
        put(disk, f"{KAFKA}/__cluster_metadata/raft-state", b"x")
    else:
        files.remove_tree(f"{KAFKA}/__cluster_metadata-0")
    with pytest.raises(NotAdoptableError, match=says):
        looked_at(directory)


def test_directories_of_two_clusters_are_not_mixed() -> None:
    directory = simple()
    copy_in(directory.disk, GOLDEN / "crashed" / "data", "/other")
    with pytest.raises(NotAdoptableError, match="of different clusters"):
        looked_at(directory, "/other")
