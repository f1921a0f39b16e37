"""Who may commit and fetch positions of a consumer group, and when they expire."""

import pytest

from distributedlog.groups.config import GroupConfig
from distributedlog.groups.requests import (
    CommitRequest,
    CommittedOffset,
    DeleteOffsetsReply,
    DeleteOffsetsRequest,
    FetchOffsetsRequest,
)
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition
from tests.unit.groups.consumer.stage import ConsumerStage, Topics, classic_offer
from tests.unit.groups.stage import GROUP

PLACE = TopicPartition("t", 0)
RETENTION_MS = 1_000_000


def fetch(stage: ConsumerStage, member_id: str | None = None, epoch: int = -1) -> ErrorCode:
    return stage.code_of(FetchOffsetsRequest(GROUP, None, member_id, epoch))


def test_a_member_commits_and_fetches_in_its_epoch_and_in_no_other() -> None:
    stage = ConsumerStage()
    first, second = stage.member("m0"), stage.member("m1")
    stage.settle_members(first, second)
    assert stage.commit(5, "m0", 2) is ErrorCode.NONE
    assert stage.committed() == {PLACE: 5}
    assert fetch(stage, "m0", 2) is ErrorCode.NONE
    for epoch in (-1, 0, 1, 3):
        assert stage.commit(6, "m0", epoch) is ErrorCode.STALE_MEMBER_EPOCH
        assert fetch(stage, "m0", epoch) is ErrorCode.STALE_MEMBER_EPOCH
    assert stage.committed() == {PLACE: 5}


def test_strangers_commit_nothing_while_there_are_members() -> None:
    stage = ConsumerStage()
    only = stage.member("m0")
    assert stage.commit(5) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.commit(5, "m9", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch(stage) is ErrorCode.NONE, "an administrator looks"
    assert fetch(stage, "m9", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    only.leave()
    assert stage.commit(5) is ErrorCode.NONE, "an administrator sets positions of an empty group"
    assert stage.commit(6, "m0", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.committed() == {PLACE: 5}


def test_who_was_thrown_out_commits_nothing_any_more() -> None:
    stage = ConsumerStage()
    silent = stage.member("m0")
    stage.advance(100_000)
    assert stage.commit(5, "m0", silent.epoch) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_request_that_knows_no_epochs_is_refused_to_those_who_have_one() -> None:
    stage = ConsumerStage()
    stage.member("m0")
    stage.join("k", protocols=classic_offer(stage))
    position = CommittedOffset(PLACE, 5, -1, "")
    old = CommitRequest(GROUP, "m0", None, 1, (position,), knows_epochs=False)
    assert stage.code_of(old) is ErrorCode.UNSUPPORTED_VERSION
    classic = old._replace(member_id="k", generation=2)
    assert stage.code_of(classic) is ErrorCode.NONE
    assert stage.code_of(classic._replace(generation=1)) is ErrorCode.ILLEGAL_GENERATION
    fenced = classic._replace(instance_id="i9")
    assert stage.code_of(fenced) is ErrorCode.UNKNOWN_MEMBER_ID


def test_positions_of_topics_that_are_read_cannot_be_deleted() -> None:
    stage = ConsumerStage(Topics(t=1, u=1, a=1))
    only = stage.member("m0", "t", pattern="a")
    for topic in ("t", "u", "a"):
        assert stage.commit(5, "m0", only.epoch, topic=topic) is ErrorCode.NONE
    places = tuple(TopicPartition(topic, 0) for topic in ("t", "u", "a"))
    reply = stage.ask(DeleteOffsetsRequest(GROUP, places))
    assert isinstance(reply, DeleteOffsetsReply)
    read = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert reply.errors == (read, ErrorCode.NONE, read)


@pytest.mark.parametrize("fails_over", [False, True])
def test_positions_expire_only_after_the_group_was_empty_for_as_long_as_they_are_kept(
    fails_over: bool,
) -> None:
    stage = ConsumerStage(
        config=GroupConfig(
            offsets_retention_ms=RETENTION_MS,
            offsets_retention_check_ms=10_000,
            consumer_session_timeout_ms=10**9,
        )
    )
    only = stage.member("m0")
    stage.commit(5, "m0", only.epoch)
    stage.advance(2 * RETENTION_MS)
    assert stage.committed() == {PLACE: 5}, "it has a member"
    only.leave()
    stage.advance(RETENTION_MS - 20_000)
    assert stage.committed() == {PLACE: 5}
    if fails_over:
        stage.failover()
        stage.advance(RETENTION_MS - 20_000)
        assert stage.committed() == {PLACE: 5}, "how long it was empty before is not known: it waits longer"
    stage.advance(40_000)
    assert stage.committed() == {}
    assert list(stage.machine.durable_records()) == [], "the empty group goes with its last position"
