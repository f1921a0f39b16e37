"""Groups that move between the protocols: empty, and with their members."""

import pytest

from distributedlog.groups.classic.group import GroupState
from distributedlog.groups.config import GroupConfig, MigrationPolicy
from distributedlog.groups.consumer.topics import TopicIdPartitions
from distributedlog.groups.requests import Leaver, SupportedProtocol
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.ids import TopicPartition
from tests.unit.groups.consumer.stage import (
    REVOCATION_MS,
    Client,
    ConsumerStage,
    classic_offer,
    encode_assignment,
    partitions_in,
)
from tests.unit.groups.stage import GROUP, SESSION_MS, decoded

REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS


def classic_group(stage: ConsumerStage) -> tuple[str, int]:
    """A classic group of one member that has everything; its id and generation."""
    joined = stage.join(protocols=classic_offer(stage)).joined
    everything = encode_assignment(stage, stage.topics.all_partitions("t"))
    stage.sync(joined.member_id, joined.generation, {joined.member_id: everything})
    return joined.member_id, joined.generation


def rejoin(
    stage: ConsumerStage, member_id: str, owned: TopicIdPartitions = frozenset(), instance: str | None = None
) -> tuple[int, TopicIdPartitions]:
    """JoinGroup and SyncGroup of a classic member; its generation, and what it has then."""
    joined = stage.join(member_id, protocols=classic_offer(stage, owned=owned), instance=instance).joined
    assert joined.error is ErrorCode.NONE
    synced = stage.sync(joined.member_id, joined.generation, instance=instance)
    return joined.generation, partitions_in(stage, synced.assignment)


def check_log(stage: ConsumerStage) -> None:
    """What the log says is what there is."""
    machine = stage.new_machine()
    for offset, entry in enumerate(stage.log.entries):
        machine.replay(decoded(entry), offset)
    assert list(machine.durable_records()) == list(stage.machine.durable_records())
    assert not machine.stored.keys() & machine.consumers.by_id.keys()


# --- while empty -------------------------------------------------------------------------------


def test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_positions() -> None:
    stage = ConsumerStage(policy=MigrationPolicy.DISABLED)
    member_id, generation = classic_group(stage)
    assert stage.commit(7, member_id, generation) is ErrorCode.NONE
    assert stage.code_of(Client(stage, "m0").request()) is ErrorCode.GROUP_ID_NOT_FOUND
    stage.leave(member_id)
    first = stage.member("m0")
    assert first.partitions == [0, 1, 2, 3]
    assert (stage.machine.groups, stage.machine.stored) == ({}, {})
    assert stage.committed() == {TopicPartition("t", 0): 7}
    check_log(stage)


def test_an_empty_consumer_group_becomes_a_classic_group_and_keeps_its_positions() -> None:
    stage = ConsumerStage(policy=MigrationPolicy.DISABLED)
    first = stage.member("m0", pattern="t")
    assert stage.commit(7, "m0", first.epoch) is ErrorCode.NONE
    first.leave()
    classic_group(stage)
    assert stage.machine.groups[GROUP].state is GroupState.STABLE
    assert stage.machine.consumers.by_id == {}
    assert stage.committed() == {TopicPartition("t", 0): 7}
    assert stage.code_of(first.request()) is ErrorCode.GROUP_ID_NOT_FOUND
    check_log(stage)


def test_an_id_that_was_given_out_by_an_empty_classic_group_is_good_for_the_consumer_group() -> None:
    stage = ConsumerStage()
    given = stage.join(protocols=classic_offer(stage), must_know_id=True).joined
    assert given.error is ErrorCode.MEMBER_ID_REQUIRED
    first = stage.member("m0")
    assert stage.join(given.member_id, protocols=classic_offer(stage)).code is ErrorCode.NONE
    stage.advance(SESSION_MS - 1)
    assert first.beat() is ErrorCode.NONE, "the deadline of the id went with the classic group"


# --- upwards -----------------------------------------------------------------------------------


def test_a_classic_group_is_moved_over_when_the_first_new_member_joins() -> None:
    stage = ConsumerStage()
    member_id, generation = classic_group(stage)
    newcomer = stage.member("m0")
    assert newcomer.partitions == [], "the classic member has everything yet"
    assert stage.heartbeat(member_id, generation) is REBALANCE
    generation, owned = rejoin(stage, member_id)
    assert (generation, len(owned)) == (2, 2)
    assert stage.heartbeat(member_id, generation) is ErrorCode.NONE
    newcomer.beat()
    assert owned | newcomer.owned == stage.topics.all_partitions("t")
    assert not owned & newcomer.owned
    described = stage.describe()
    assert (described.state, [each.is_classic for each in described.members]) == ("Stable", [True, False])
    check_log(stage)


def test_a_cooperative_classic_member_gives_up_bit_by_bit() -> None:
    stage = ConsumerStage()
    member_id, generation = classic_group(stage)
    everything = stage.topics.all_partitions("t")
    newcomer = stage.member("m0")
    assert stage.heartbeat(member_id, generation) is REBALANCE
    generation, assigned = rejoin(stage, member_id, owned=everything)
    assert len(assigned) == 2, "it is told what it may keep"
    newcomer.beat()
    assert newcomer.partitions == [], "and until it has said that it did, nobody else has the rest"
    assert stage.heartbeat(member_id, generation) is REBALANCE
    generation, again = rejoin(stage, member_id, owned=assigned)
    assert again == assigned
    newcomer.beat()
    assert newcomer.owned == everything - assigned
    assert stage.heartbeat(member_id, generation) is ErrorCode.NONE


def test_a_classic_member_that_waited_is_told_when_more_is_free() -> None:
    stage = ConsumerStage()
    first = stage.member("m0")
    joined = stage.join("k", protocols=classic_offer(stage)).joined
    synced = stage.sync("k", joined.generation)
    assert (joined.generation, partitions_in(stage, synced.assignment)) == (2, frozenset())
    assert joined.leader_id == "", "somebody else assigns"
    assert stage.heartbeat("k", 2) is ErrorCode.NONE
    first.beat()
    first.beat()
    assert stage.heartbeat("k", 2) is REBALANCE
    assert len(rejoin(stage, "k")[1]) == 2


def test_members_that_wait_at_a_barrier_are_told_to_join_again() -> None:
    stage = ConsumerStage()
    member_id, _ = classic_group(stage)
    waiting = stage.join(protocols=classic_offer(stage))
    assert not waiting.is_answered
    newcomer = stage.member("m0")
    assert waiting.code is REBALANCE
    rejoin(stage, member_id)
    other = waiting.joined.member_id
    owned = rejoin(stage, other)[1]
    newcomer.beat()
    assert owned | newcomer.owned | rejoin(stage, member_id)[1] == stage.topics.all_partitions("t")


def test_of_a_generation_without_assignments_members_hold_what_they_said_they_own() -> None:
    stage = ConsumerStage()
    member_id, _ = classic_group(stage)
    everything = stage.topics.all_partitions("t")
    joined = stage.join(member_id, protocols=classic_offer(stage, owned=everything)).joined
    assert stage.machine.groups[GROUP].state is GroupState.COMPLETING
    newcomer = stage.member("m0")
    assert newcomer.partitions == [], "a cooperative member goes on reading while it is assigned anew"
    assert stage.heartbeat(member_id, joined.generation) is REBALANCE


def test_a_group_whose_members_are_no_consumers_is_not_moved_over() -> None:
    for stage, protocols, kind in (
        (ConsumerStage(), (SupportedProtocol("range", b"connect"),), "connect"),
        (ConsumerStage(), (SupportedProtocol("range", b"no subscription"),), "consumer"),
        (ConsumerStage(policy=MigrationPolicy.DOWNGRADE), (SupportedProtocol("range", b""),), "consumer"),
        (
            ConsumerStage(config=GroupConfig(consumer_members_max=1)),
            (SupportedProtocol("range", b""),),
            "consumer",
        ),
    ):
        waiting = stage.join(protocols=protocols, protocol_type=kind)
        stage.advance(3_000)
        joined = waiting.joined
        before = len(stage.log.entries)
        assert stage.code_of(Client(stage, "m0").request()) is ErrorCode.GROUP_ID_NOT_FOUND
        assert stage.heartbeat(joined.member_id, joined.generation) is ErrorCode.NONE
        assert len(stage.log.entries) == before


def test_a_static_member_moves_to_the_new_protocol_by_its_instance_id() -> None:
    stage = ConsumerStage()
    joined = stage.join(instance="i0", protocols=classic_offer(stage)).joined
    everything = encode_assignment(stage, stage.topics.all_partitions("t"))
    stage.sync(joined.member_id, joined.generation, {joined.member_id: everything}, instance="i0")
    again = stage.member("m0", instance="i0")
    assert again.partitions == [0, 1, 2, 3]
    assert stage.heartbeat(joined.member_id, joined.generation, "i0") is ErrorCode.FENCED_INSTANCE_ID
    assert [each.is_classic for each in stage.describe().members] == [False]


# --- classic members in a consumer group -------------------------------------------------------


def test_a_classic_member_is_asked_who_it_is_as_anywhere() -> None:
    stage = ConsumerStage()
    stage.member("m0")
    assert stage.join(protocols=classic_offer(stage), must_know_id=True).code is ErrorCode.MEMBER_ID_REQUIRED
    stage.join("k", protocols=classic_offer(stage))
    assert stage.heartbeat("k", 1) is ErrorCode.ILLEGAL_GENERATION
    assert stage.heartbeat("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.heartbeat("m0", 1) is ErrorCode.UNKNOWN_MEMBER_ID, "it does not speak this protocol"
    assert stage.sync("k", 2, protocol="sticky").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert stage.leave("nobody") == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_classic_member_has_a_protocol_in_common_with_the_others() -> None:
    stage = ConsumerStage()
    stage.member("m0")
    wrong = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert stage.join("k", protocols=classic_offer(stage), protocol_type="connect").code is wrong
    assert stage.join("k", protocols=()).code is wrong
    assert stage.join("k", protocols=(SupportedProtocol("range", b"?"),)).code is wrong
    assert stage.join("k", protocols=classic_offer(stage)).code is ErrorCode.NONE
    assert stage.join("l", protocols=classic_offer(stage, name="sticky")).code is wrong


def test_a_classic_member_that_does_not_come_when_it_must_is_out() -> None:
    stage = ConsumerStage()
    first = stage.member("m0")
    generation = stage.join("k", protocols=classic_offer(stage)).joined.generation

    def lives(ms: int) -> ErrorCode:
        last = ErrorCode.NONE
        for _ in range(ms // 5_000):
            stage.advance(5_000)
            first.beat()
            last = stage.heartbeat("k", generation)
        return last

    assert lives(60_000) is ErrorCode.UNKNOWN_MEMBER_ID, "it never asked for its part"
    generation = rejoin(stage, "k")[0]
    stage.member("m1")
    assert lives(REVOCATION_MS + 5_000) is ErrorCode.UNKNOWN_MEMBER_ID, "it was told to join again"


def test_a_classic_member_that_goes_over_under_its_id_need_not_join_again() -> None:
    stage = ConsumerStage()
    first = stage.member("m0")
    stage.join("k", protocols=classic_offer(stage))
    over = stage.member("k")
    assert not any(each.is_classic for each in stage.describe().members)
    for _ in range(10):
        stage.advance(10_000)
        assert [first.beat(), over.beat()] == [ErrorCode.NONE] * 2


def test_a_silent_classic_member_is_out_after_its_own_session() -> None:
    stage = ConsumerStage()
    first = stage.member("m0")
    rejoin(stage, "k")
    stage.advance(SESSION_MS)
    stage.settle_members(first)
    assert first.partitions == [0, 1, 2, 3]


def test_a_static_classic_member_restarts_without_a_rebalance() -> None:
    stage = ConsumerStage()
    first = stage.member("m0")
    rejoin(stage, "", instance="i0")
    first.beat()
    first.beat()
    joined = stage.join("", protocols=classic_offer(stage), instance="i0").joined
    owned = partitions_in(stage, stage.sync(joined.member_id, joined.generation, instance="i0").assignment)
    epoch = stage.describe().epoch
    again = stage.join("", protocols=classic_offer(stage), instance="i0").joined
    assert again.member_id != joined.member_id
    assert (
        partitions_in(stage, stage.sync(again.member_id, again.generation, instance="i0").assignment) == owned
    )
    assert (stage.describe().epoch, first.beat(), first.epoch) == (epoch, ErrorCode.NONE, epoch)
    fenced = stage.join(joined.member_id, protocols=classic_offer(stage), instance="i0")
    assert fenced.code is ErrorCode.FENCED_INSTANCE_ID
    unknown = stage.join("x", protocols=classic_offer(stage), instance="i9")
    assert unknown.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_administrator_removes_a_member_of_either_protocol() -> None:
    stage = ConsumerStage()
    first, second = stage.member("m0"), stage.member("m1", instance="i1")
    assert stage.leave("m0", Leaver("", "i1")) == [ErrorCode.NONE] * 2
    assert [first.beat(), second.beat()] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


def test_an_administrator_removes_a_classic_member_by_its_instance_id() -> None:
    stage = ConsumerStage()
    first = stage.member("m0")
    rejoin(stage, "", instance="i0")
    assert stage.leave(Leaver("", "i0"), Leaver("", "i0"), Leaver("", "i9")) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    stage.settle_members(first)
    assert first.partitions == [0, 1, 2, 3]


# --- downwards ---------------------------------------------------------------------------------


@pytest.mark.parametrize("says_so", [True, False])
def test_a_consumer_group_goes_back_when_its_last_new_member_is_gone(says_so: bool) -> None:
    stage = ConsumerStage()
    last = stage.member("m0")
    generation, _ = rejoin(stage, "k")
    assert stage.commit(7, "k", generation) is ErrorCode.NONE
    if says_so:
        last.leave()
    else:
        for _ in range(12):
            stage.advance(4_000)
            stage.heartbeat("k", generation)
    group = stage.machine.groups[GROUP]
    assert (group.state, list(group.members)) == (GroupState.PREPARING, ["k"])
    assert stage.machine.consumers.by_id == {}
    check_log(stage)
    assert stage.heartbeat("k", generation) is REBALANCE
    joined = stage.join("k", protocols=classic_offer(stage)).joined
    assert (joined.leader_id, joined.generation) == ("k", generation + 1), "it leads, and assigns"
    assert stage.committed() == {TopicPartition("t", 0): 7}


def test_a_consumer_group_that_may_not_go_back_serves_its_classic_members() -> None:
    stage = ConsumerStage(policy=MigrationPolicy.UPGRADE)
    last = stage.member("m0")
    generation, _ = rejoin(stage, "k")
    last.leave()
    assert stage.machine.groups == {}
    assert stage.heartbeat("k", generation) is REBALANCE
    assert rejoin(stage, "k")[1] == stage.topics.all_partitions("t")


def test_a_group_that_went_back_survives_a_new_coordinator() -> None:
    stage = ConsumerStage()
    last = stage.member("m0")
    rejoin(stage, "k")
    last.beat()
    last.beat()
    held = rejoin(stage, "k")[1]
    last.leave()
    stage.failover()
    group = stage.machine.groups[GROUP]
    assert group.state is GroupState.STABLE
    assert partitions_in(stage, group.members["k"].assignment) == held
    check_log(stage)


def test_a_group_too_large_to_go_back_in_one_entry_stays() -> None:
    stage = ConsumerStage(config=GroupConfig(entry_bytes_max=1_500))
    last = stage.member("m0")
    for at in range(4):
        rejoin(stage, f"k{at}")
    last.leave()
    assert (stage.machine.groups, stage.group.classic_count) == ({}, 4)
