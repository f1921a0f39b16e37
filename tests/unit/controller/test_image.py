import pytest

from distributedlog.controller.deltas import diff
from distributedlog.controller.image import ConfigResource, MetadataImage, ResourceType
from distributedlog.controller.records import (
    NO_LEADER,
    ConfigChanged,
    PartitionChanged,
    PartitionCreated,
    ProducerIdsTaken,
    TopicCreated,
    TopicRemoved,
    UnregisterBroker,
)
from distributedlog.controller.requests import DeleteTopicsRequest
from distributedlog.controller.snapshots import decode_snapshot, encode_snapshot, snapshot_chunks
from distributedlog.model.errors import ConsensusError, MalformedMessageError, UnsupportedVersionError
from distributedlog.model.ids import Uuid
from tests.unit.controller.image_deltas import apply_delta
from tests.unit.controller.stage import Stage

ID = Uuid(b"the topic's own.")
OTHER = Uuid(b"the other topic.")


def large_image(partitions: int) -> MetadataImage:
    records = [TopicCreated(name="t", topic_id=ID)]
    made = [
        PartitionCreated(
            partition_id=number,
            topic_id=ID,
            replicas=[1, 2, 3],
            isr=[1, 2, 3],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        )
        for number in range(partitions)
    ]
    return MetadataImage().apply([*records, *made], 0)


def busy_stage() -> Stage:
    stage = Stage()
    stage.start(1, 2, rack="north")
    stage.start(3)
    stage.create("a", (1, 2), (2, 1), min_insync_replicas="2")
    stage.create("b.c", (3, 1), retention_ms="5")
    stage.silence(2)
    return stage


def test_an_image_is_never_changed() -> None:
    old = large_image(3)
    new = old.apply([PartitionChanged(partition_id=1, topic_id=ID, leader=2)], 1)
    assert old.topics[ID].partitions[1].leader == 1
    assert new.topics[ID].partitions[1].leader == 2


def test_a_change_shares_every_other_partition_with_the_old_image() -> None:
    old = large_image(2_000)
    new = old.apply([PartitionChanged(partition_id=1, topic_id=ID, leader=2)], 1)
    same = [
        number
        for number in range(2_000)
        if old.topics[ID].partitions[number] is new.topics[ID].partitions[number]
    ]
    assert len(same) == 1_999
    (delta,) = diff(old, new).partitions
    assert (delta.partition_id, delta.topic.name) == (1, "t")
    assert delta.old is old.topics[ID].partitions[1]


def test_epochs_rise_by_the_rule() -> None:
    image = large_image(1)

    def after(**change: object) -> tuple[int, int]:
        record = PartitionChanged(partition_id=0, topic_id=ID, **change)  # type: ignore[arg-type]
        partition = image.apply([record], 1).topics[ID].partitions[0]
        return partition.leader_epoch, partition.partition_epoch

    assert after(isr=[1]) == (0, 1)
    assert after(leader=2) == (1, 1)
    assert after(leader=1) == (1, 1)
    assert after(leader=NO_LEADER) == (1, 1)


@pytest.mark.parametrize(
    "record",
    [
        PartitionChanged(partition_id=0, topic_id=OTHER),
        PartitionChanged(partition_id=9, topic_id=ID),
        PartitionCreated(partition_id=0, topic_id=OTHER, replicas=[1], isr=[1]),
        TopicRemoved(topic_id=OTHER),
        TopicCreated(name="t", topic_id=OTHER),
        TopicCreated(name="u", topic_id=ID),
        UnregisterBroker(broker_id=1, broker_epoch=0),
        ProducerIdsTaken(broker_id=1, next_producer_id=0),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_that_cannot_follow_stops_the_reader(record: TopicRemoved) -> None:
    image = large_image(1)
    with pytest.raises(ConsensusError):
        image.apply([record], 1)


def test_an_entry_is_applied_once() -> None:
    with pytest.raises(ConsensusError, match="applied already"):
        large_image(1).apply([], 0)


def test_a_delta_names_what_brokers_must_do() -> None:
    stage = busy_stage()
    old = stage.image
    stage.ask(DeleteTopicsRequest(("b.c",)), object)
    stage.create("d", (1,))
    stage.heartbeat(2)
    delta = diff(old, stage.image)
    assert [topic.name for topic in delta.topics_removed] == ["b.c"]
    assert [topic.name for topic in delta.topics_created] == ["d"]
    assert [change.key for change in delta.brokers] == [2]
    assert [change.key for change in delta.configs] == [ConfigResource(ResourceType.TOPIC, "b.c")]
    assert apply_delta(delta, old) == stage.image


def test_a_topic_that_was_made_again_is_another_topic() -> None:
    stage = busy_stage()
    old = stage.image
    stage.ask(DeleteTopicsRequest(("a",)), object)
    stage.create("a", (3,))
    delta = diff(old, stage.image)
    assert [topic.topic_id for topic in delta.topics_removed] == [old.topic_ids["a"]]
    assert [topic.topic_id for topic in delta.topics_created] == [stage.image.topic_ids["a"]]
    assert apply_delta(delta, old) == stage.image


def test_nothing_differs_from_itself() -> None:
    image = busy_stage().image
    delta = diff(image, image)
    assert not any(delta[:-1])
    assert apply_delta(delta, image) == image


def test_a_snapshot_is_the_whole_image() -> None:
    image = busy_stage().image
    assert decode_snapshot(encode_snapshot(image)) == image
    empty = MetadataImage()
    assert decode_snapshot(encode_snapshot(empty)) == empty


def test_a_large_image_is_written_in_pieces() -> None:
    image = large_image(5_000)
    chunks = list(snapshot_chunks(image))
    assert len(chunks) == 7
    assert max(map(len, chunks)) < 100_000
    assert decode_snapshot(b"".join(chunks)) == image


def test_equal_images_make_equal_snapshots_however_they_came_about() -> None:
    def with_settings(*names: str) -> MetadataImage:
        image = large_image(50)
        for offset, name in enumerate(names, 1):
            setting = ConfigChanged(resource_type=2, resource_name=name, name="n", value="v")
            image = image.apply([setting], offset)
        return image

    assert encode_snapshot(with_settings("y", "z")) == encode_snapshot(with_settings("z", "y"))


def test_a_snapshot_that_is_cut_or_no_snapshot_is_refused() -> None:
    data = encode_snapshot(busy_stage().image)
    for end in range(len(data)):
        with pytest.raises(MalformedMessageError):
            decode_snapshot(data[:end])
    with pytest.raises(MalformedMessageError, match="follow"):
        decode_snapshot(data + b"\0")
    with pytest.raises(MalformedMessageError, match="no snapshot"):
        decode_snapshot(b"PK" + data[2:])
    with pytest.raises(UnsupportedVersionError, match="format 2"):
        decode_snapshot(data[:4] + b"\x02" + data[5:])
