"""What heartbeats tell of leases: how far a broker must be to answer, and whether its predecessor is out."""

import pytest

from distributedlog.controller.records import TopicRemoved
from distributedlog.controller.requests import (
    AlterPartitionsReply,
    AlterPartitionsRequest,
    ElectionType,
    ElectLeadersReply,
    ElectLeadersRequest,
    HeartbeatReply,
    HeartbeatRequest,
    IsrChange,
    IsrMember,
)
from distributedlog.controller.sessions.leases import Leases
from distributedlog.model.ids import TopicPartition
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from tests.unit.controller.stage import Stage


def beat(stage: Stage, broker_id: int, applied_offset: int | None) -> HeartbeatReply:
    """Its own image is up to date; what it has applied is another matter."""
    request = HeartbeatRequest(
        broker_id, stage.epochs[broker_id], stage.image.offset, applied_offset=applied_offset
    )
    return stage.ask(request, HeartbeatReply)


def moved(topic: str = OFFSETS_TOPIC) -> tuple[Stage, int]:
    """Leadership has moved from 1 to 2 and back to the preferred leader 1, at the offset returned: from a
    live broker."""
    stage = Stage()
    stage.start(1, 2, 3)
    topic_id = stage.create(topic, (1, 2, 3))
    stage.silence(1)
    assert stage.partition(topic).leader == 2
    stage.heartbeat(1)
    partition = stage.partition(topic)
    isr = tuple(IsrMember(each, stage.epochs[each]) for each in (*partition.isr, 1))
    change = IsrChange(topic_id, 0, partition.leader_epoch, partition.partition_epoch, isr)
    stage.ask(AlterPartitionsRequest(2, stage.epochs[2], (change,)), AlterPartitionsReply)
    for broker_id in (1, 2, 3):
        beat(stage, broker_id, stage.image.offset)
    elected = ElectLeadersRequest(ElectionType.PREFERRED, (TopicPartition(topic, 0),))
    stage.ask(elected, ElectLeadersReply)
    assert stage.partition(topic).leader == 1
    return stage, stage.image.offset


def test_who_lost_a_coordinators_partition_must_apply_that_and_nobody_else_must() -> None:
    stage, offset = moved()
    behind = offset - 1
    assert beat(stage, 2, behind).lease_offset == offset
    for other in (1, 3):
        assert (beat(stage, other, behind).lease_offset or 0) <= behind


def test_the_successor_is_told_that_all_is_settled_when_the_old_leader_has_applied_it() -> None:
    stage, offset = moved()
    beat(stage, 2, offset - 1)
    settled = beat(stage, 1, offset).settled_offset
    assert settled is not None
    assert settled < offset, "broker 2 may answer yet"
    assert (beat(stage, 2, offset).settled_offset or 0) >= offset, "who asks does not wait for itself"
    assert (beat(stage, 1, offset).settled_offset or 0) >= offset


def test_a_broker_that_is_fenced_or_shutting_down_holds_no_lease() -> None:
    for is_fenced in (True, False):
        stage, offset = moved()
        beat(stage, 2, offset - 1)
        request = HeartbeatRequest(2, stage.epochs[2], offset, applied_offset=offset - 1)
        asks = request._replace(want_fence=is_fenced, want_shutdown=not is_fenced)
        stage.ask(asks, HeartbeatReply)
        assert (beat(stage, 1, offset).settled_offset or 0) >= offset


def test_a_new_controller_takes_nobodys_word_but_a_heartbeats() -> None:
    stage, offset = moved()
    for broker_id in (1, 2, 3):
        beat(stage, broker_id, offset)
    stage.failover()
    reply = beat(stage, 1, offset)
    assert reply.lease_offset == offset, "it may have lost something that this controller did not see"
    assert (reply.settled_offset or 0) < offset
    beat(stage, 2, offset)
    assert (beat(stage, 1, offset).settled_offset or 0) < offset, "broker 3 has said nothing yet"
    beat(stage, 3, offset)
    assert (beat(stage, 1, offset).settled_offset or 0) >= offset


def test_an_entry_of_the_heartbeat_itself_counts_too() -> None:
    stage, _ = moved()
    offset = stage.log.next_offset()
    request = HeartbeatRequest(1, stage.epochs[1], stage.image.offset, want_shutdown=True)
    assert stage.ask(request, HeartbeatReply).lease_offset == offset


def test_of_a_broker_that_does_not_tell_what_it_applied_its_image_is_taken_for_it() -> None:
    stage, offset = moved()
    beat(stage, 2, None)
    assert (beat(stage, 1, offset).settled_offset or 0) >= offset


def test_other_topics_have_no_coordinators() -> None:
    stage, offset = moved("t")
    assert (beat(stage, 2, offset - 1).lease_offset or 0) < offset


def test_who_was_fenced_must_apply_that_it_is_unfenced_whatever_it_led() -> None:
    stage = Stage()
    stage.start(1, 2, 3)
    stage.create("t", (1, 2, 3))
    for broker_id in (1, 2, 3):
        beat(stage, broker_id, stage.image.offset)
    before = stage.image.offset
    stage.silence(1)
    assert stage.partition("t").leader == 2, "which broker 1 does not know"
    unfenced = stage.log.next_offset()
    for _ in range(2):
        assert beat(stage, 1, before).lease_offset == unfenced
    settled = beat(stage, 2, stage.image.offset).settled_offset
    assert (settled or 0) >= unfenced, "nobody coordinates in the place of broker 1"


def test_a_topic_that_is_removed_is_lost_by_its_leaders() -> None:
    stage, _ = moved()
    topic_id = stage.image.topic_ids[OFFSETS_TOPIC]
    leases = Leases()
    leases.note_changes(stage.image, [TopicRemoved(topic_id=topic_id)], 99)
    assert (leases.lease_offset(1), leases.lease_offset(2)) == (99, -1)


@pytest.mark.parametrize("applied", [4, 5, 6])
def test_settled_is_what_the_slowest_of_those_behind_has_applied(applied: int) -> None:
    leases = Leases()
    leases.restart(0)
    for broker_id, offset in ((1, 3), (2, 7), (3, 9)):
        leases.note_lost(broker_id, offset)
    leases.note_applied(1, 3)
    leases.note_applied(2, applied)
    leases.note_applied(3, 8)
    assert leases.settled_offset((1, 2, 3), 4, 9) == applied
    assert leases.settled_offset((1, 3), 4, 9) == 8
    assert leases.settled_offset((1,), 4, 9) == 9
