from distributedlog.broker.cluster.topics_seen import TopicsSeen
from tests.unit.broker.partition_stage import Metadata, topic_id


def test_a_topic_is_found_by_name_and_by_id() -> None:
    metadata, seen = Metadata(), TopicsSeen()
    image = metadata.create("t", 1, 3)
    for _ in range(2):
        assert seen.named(image, "t") is image.topic_named("t")
        assert seen.with_id(image, topic_id(1)) is image.topic_named("t")
        assert seen.named(image, "u") is None
        assert seen.with_id(image, topic_id(2)) is None


def test_another_image_is_looked_at_anew() -> None:
    metadata, seen = Metadata(), TopicsSeen()
    before = metadata.create("t", 1, 3)
    assert seen.named(before, "t") is not None
    assert seen.with_id(before, topic_id(1)) is not None
    assert seen.named(before, "u") is None
    metadata.remove(1)
    after = metadata.create("u", 2, 5)
    assert seen.named(after, "t") is None
    assert seen.with_id(after, topic_id(1)) is None
    found = seen.named(after, "u")
    assert found is not None
    assert len(found.partitions) == 5
    again = seen.named(before, "t")
    assert again is not None
    assert again.topic_id == topic_id(1), "also one that is older"
