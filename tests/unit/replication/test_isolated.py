"""What a leader does that may have been replaced, and when it is one."""

import pytest

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import NotEnoughReplicasError, NotLeaderOrFollowerError
from distributedlog.replication.contract import NOT_FOUND, OffsetSpec
from distributedlog.replication.partition import Partition
from tests.unit.replication.support import ME, OTHER, THIRD, Stage, produce, values_of
from tests.unit.storage.support import value_of


def is_isolated(partition: Partition) -> bool:
    return partition.is_isolated


def test_an_isolated_leader_refuses_what_it_cannot_commit_and_serves_what_it_has() -> None:
    stage = Stage()
    partition = stage.lead(replicas=(ME, OTHER))
    end = produce(partition, 1).last_offset + 1
    stage.executor.run_all()
    partition.read_for_replica(OTHER, end, 1000, 0)
    later = produce(partition, 2).last_offset + 1
    assert partition.check_acknowledged(later) is None
    stage.told.clear()
    partition.set_heard(())
    assert stage.told == ["state"], "whoever waits is told"
    assert partition.check_acknowledged(end) is ErrorCode.NONE
    assert partition.check_acknowledged(later) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    before = partition.log_end_offset
    with pytest.raises(NotLeaderOrFollowerError, match="neither a controller nor all in sync"):
        produce(partition, 3)
    assert partition.log_end_offset == before
    assert values_of(partition.read(0, 1000)) == [value_of(1)]
    for any_replica in (False, True):
        with pytest.raises(NotLeaderOrFollowerError):
            partition.read(end, 1000, any_replica=any_replica)
    with pytest.raises(NotLeaderOrFollowerError):
        partition.list_offset(OffsetSpec.LATEST)
    own = partition.leader_epoch
    assert partition.offset_for_leader_epoch(own).epoch == own
    with pytest.raises(NotLeaderOrFollowerError):
        partition.offset_for_leader_epoch(own + 1)
    assert partition.list_offset(OffsetSpec.EARLIEST).offset == 0
    assert partition.list_offset(OffsetSpec.LATEST, isolation=None).offset == later, "asked by a follower"
    assert produce(partition, 3, acks=1).base_offset == before, "one replica is all that acks=1 asks for"
    partition.set_heard(None)
    assert produce(partition, 4).base_offset == before + 1
    assert values_of(partition.read(end, 1000)) == []


def test_an_isolated_leader_finds_times_in_what_it_has_and_does_not_say_that_nothing_is_newer() -> None:
    stage = Stage()
    partition = stage.lead(replicas=(ME, OTHER))
    end = produce(partition, 1).last_offset + 1
    stage.executor.run_all()
    partition.read_for_replica(OTHER, end, 1000, 0)
    stored_ms = partition.list_offset(OffsetSpec.MAX_TIMESTAMP).timestamp_ms
    produce(partition, 2)
    assert partition.list_offset(stored_ms + 1) == NOT_FOUND
    partition.set_heard(())
    assert partition.list_offset(stored_ms).offset == 0
    for of_the_end in (stored_ms + 1, OffsetSpec.MAX_TIMESTAMP):
        with pytest.raises(NotLeaderOrFollowerError):
            partition.list_offset(of_the_end)
    assert partition.list_offset(OffsetSpec.LATEST_TIERED) == NOT_FOUND, "it is nowhere"


def test_a_leader_is_isolated_by_the_silence_of_any_that_is_in_sync_and_of_nobody_else() -> None:
    stage = Stage()
    partition = stage.lead(replicas=(ME, OTHER, THIRD))
    partition.set_heard({OTHER})
    assert is_isolated(partition), "the third may lead"
    partition.set_heard({OTHER, THIRD})
    assert not is_isolated(partition)
    partition.set_heard({THIRD})
    assert is_isolated(partition)
    partition = stage.lead(2, replicas=(ME, OTHER, THIRD), isr=(ME, OTHER))
    partition.set_heard({OTHER})
    assert not is_isolated(partition), "the third may not lead"
    partition.set_heard({THIRD})
    assert is_isolated(partition)


def test_who_may_have_joined_the_isr_may_lead() -> None:
    """The leader has asked for it, and does not know yet what the controller said."""
    stage = Stage()
    partition = stage.lead(replicas=(ME, OTHER), isr=(ME,))
    produce(partition, 1)
    stage.executor.run_all()
    partition.read_for_replica(OTHER, 1, 1000, 0)
    assert partition.check_leader().propose(1, 0, 1_000) is not None
    partition.set_heard(())
    assert is_isolated(partition)
    partition.withdraw_proposal()
    partition.set_heard(())
    assert not is_isolated(partition)


def test_who_alone_is_the_isr_cannot_be_replaced_and_goes_on() -> None:
    stage = Stage()
    partition = stage.lead(replicas=(ME, OTHER), isr=(ME,))
    partition.set_heard(())
    assert not partition.is_isolated
    assert produce(partition, 1).base_offset == 0


def test_who_is_eligible_beside_the_isr_may_lead_when_the_last_of_it_is_fenced() -> None:
    stage = Stage()
    stage.partition.reconfigure(stage.partition.log.config, min_insync_replicas=2)
    partition = stage.lead(replicas=(ME, OTHER, THIRD), isr=(ME,), elr=(OTHER,))
    assert partition.check_leader().is_under_min_isr
    partition.set_heard(())
    with pytest.raises(NotLeaderOrFollowerError):
        produce(partition, 1)
    partition.set_heard({OTHER})
    with pytest.raises(NotEnoughReplicasError):  # the third may not lead
        produce(partition, 1)


def test_what_the_controller_says_ends_isolation() -> None:
    stage = Stage()
    partition = stage.lead(replicas=(ME, OTHER))
    partition.set_heard(())
    assert stage.follow(1) is partition
    assert not partition.is_isolated
    partition.set_heard(())
    assert not partition.is_isolated, "a follower is none"
    stage.lead(2, replicas=(ME, OTHER))
    partition.set_heard(())
    stage.lead(3, replicas=(ME, OTHER))
    assert not partition.is_isolated
