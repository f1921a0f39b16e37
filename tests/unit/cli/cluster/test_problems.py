"""Whether a cluster is well, by what is known of it."""

import pytest

from distributedlog.cli.cluster.problems import (
    Problem,
    Severity,
    find_broker_problems,
    find_internal_topic_problems,
    find_quorum_problems,
    find_topic_problems,
    in_order,
)
from distributedlog.client.addresses import Address
from distributedlog.client.admin.cluster import QuorumReplica, QuorumView
from distributedlog.client.admin.log_dirs import LogDirView, ReplicaSize
from distributedlog.client.view import BrokerView, ClusterView, PartitionView, TopicView
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import ConnectionLostError, UnsupportedVersionError
from distributedlog.model.ids import TopicPartition

MIB = 1024 * 1024


def topic(leader: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> tuple[TopicView, ...]:
    return (TopicView("orders", (PartitionView(0, leader, 1, replicas, isr),)),)


def judged(
    found: tuple[TopicView, ...], min_isr: int = 1, live: tuple[int, ...] = (1, 2, 3)
) -> list[Problem]:
    return list(find_topic_problems(found, {"orders": min_isr}, live))


def cluster(*node_ids: int) -> ClusterView:
    return ClusterView(
        "c", 1, {each: BrokerView(each, Address("127.0.0.1", 9000 + each)) for each in node_ids}
    )


# --- partitions --------------------------------------------------------------------------------


def test_a_partition_with_all_in_sync_is_well() -> None:
    assert judged(topic(1, (1, 2, 3), (3, 1, 2)), 2) == []


def test_a_partition_without_a_leader_names_whom_to_start() -> None:
    (found,) = judged(topic(-1, (1, 2), (2,)))
    assert (found.severity, found.kind, found.subject) == (Severity.CRITICAL, "offline", "orders-0")
    assert found.advice.startswith("start broker 2; if it runs,")
    (nobody,) = judged(topic(-1, (1, 2), ()))
    assert nobody.advice.startswith("start broker 1, 2;")


def test_too_few_in_sync_for_acks_all_is_critical_and_fewer_than_all_is_not() -> None:
    (short,) = judged(topic(1, (1, 2, 3), (1,)), 2)
    assert (short.severity, short.kind) == (Severity.CRITICAL, "below_min_isr")
    assert "start broker 2, 3, or lower min.insync.replicas" in short.advice
    (behind,) = judged(topic(1, (1, 2, 3), (1, 2)), 2)
    assert (behind.severity, behind.kind) == (Severity.WARNING, "under_replicated")
    assert "broker 3" in behind.advice


def test_why_replicas_are_missing_is_told() -> None:
    (short,) = judged(topic(1, (1, 2, 3), (1,)), 2, live=(1, 2))
    assert short.message.endswith("in sync 1: broker 3 is not in the cluster, broker 2 is behind its leader")
    partition = PartitionView(0, 1, 1, (1, 2), (1,), offline=(2,))
    (offline,) = judged((TopicView("orders", (partition,)),))
    assert offline.message.endswith("broker 2 cannot serve its log")


def test_no_more_are_needed_than_there_are_replicas() -> None:
    assert judged(topic(1, (1,), (1,)), 2) == []


def test_an_internal_topic_with_fewer_replicas_than_there_could_be_is_told() -> None:
    def offsets(*replicas: int) -> tuple[TopicView, ...]:
        partitions = (PartitionView(0, 1, 1, (1, 2, 3), (1,)), PartitionView(1, 1, 1, replicas, replicas))
        return (TopicView("__consumer_offsets", partitions, is_internal=True),)

    (found,) = find_internal_topic_problems(cluster(1, 2, 3, 4), offsets(1))
    assert (found.severity, found.kind, found.subject) == (
        Severity.WARNING, "few_replicas", "__consumer_offsets",
    )  # fmt: skip
    assert "1 replica(s), and there are 4 brokers" in found.message
    assert len(list(find_internal_topic_problems(cluster(1, 2), offsets(1)))) == 1
    assert not list(find_internal_topic_problems(cluster(1, 2, 3, 4), offsets(4, 2, 3)))
    assert not list(find_internal_topic_problems(cluster(1), offsets(1)))
    assert not list(find_internal_topic_problems(cluster(1, 2, 3), topic(1, (1,), (1,))))


# --- brokers and disks -------------------------------------------------------------------------


def test_a_broker_that_replicas_are_on_and_that_is_not_there() -> None:
    (found,) = find_broker_problems(cluster(1), topic(1, (1, 4), (1,)), {})
    assert (found.kind, found.subject) == ("broker_unreachable", "broker 4")


def test_a_broker_that_is_fenced_is_a_problem_though_no_replica_is_on_it() -> None:
    (found,) = find_broker_problems(cluster(1), (), {}, (3,))
    assert (found.kind, found.subject) == ("broker_unreachable", "broker 3")
    (found,) = find_broker_problems(cluster(1), topic(1, (1, 4), (1,)), {}, (4,))
    assert found.subject == "broker 4"


def test_a_broker_that_does_not_answer_is_told_apart_from_one_that_cannot() -> None:
    told = {1: ConnectionLostError("it hung up"), 2: UnsupportedVersionError("too old")}
    (found,) = find_broker_problems(cluster(1, 2), (), told)
    assert (found.kind, found.subject) == ("broker_unreachable", "broker 1")
    assert "it hung up" in found.message


def test_failed_and_full_disks() -> None:
    directories = (
        LogDirView("/a", ErrorCode.KAFKA_STORAGE_ERROR),
        LogDirView("/b", total_bytes=1000 * MIB, usable_bytes=49 * MIB),
        LogDirView("/c", total_bytes=1000 * MIB, usable_bytes=51 * MIB),
        LogDirView("/d"),
    )
    found = list(find_broker_problems(cluster(1), (), {1: directories}))
    assert [(each.kind, each.subject) for each in found] == [
        ("log_dir_failed", "broker 1, /a"),
        ("disk_full", "broker 1, /b"),
    ]
    assert "4.9 % free" in found[1].message
    assert found[1].severity is Severity.WARNING


@pytest.mark.parametrize("usable_bytes", [0, MIB - 1])
def test_a_disk_without_room_for_a_batch_is_critical(usable_bytes: int) -> None:
    directories = (LogDirView("/a", total_bytes=1000 * MIB, usable_bytes=usable_bytes),)
    (found,) = find_broker_problems(cluster(1), (), {1: directories})
    assert (found.kind, found.severity) == ("disk_full", Severity.CRITICAL)
    assert found.message.endswith("free: what is written there is refused")


def test_what_is_critical_comes_first_and_else_the_order_stays() -> None:
    a, b, c, d = (
        Problem(severity, "kind", subject, "", "")
        for severity, subject in zip(
            (Severity.WARNING, Severity.CRITICAL, Severity.WARNING, Severity.CRITICAL), "abcd", strict=True
        )
    )
    assert in_order((a, b, c, d)) == [b, d, a, c]


# --- the quorum --------------------------------------------------------------------------------


def quorum(*voters: QuorumReplica, leader_id: int = 1) -> QuorumView:
    return QuorumView(leader_id, 3, 5000, voters, ())


def test_a_quorum_that_keeps_up_is_well() -> None:
    voters = (QuorumReplica(1, 5000, -1, 90_000), QuorumReplica(2, 4990, -1, 89_000))
    assert list(find_quorum_problems(quorum(*voters))) == []
    assert list(find_quorum_problems(UnsupportedVersionError("an old one"))) == []


def test_voters_that_are_far_behind_silent_or_unknown() -> None:
    voters = (
        QuorumReplica(1, 5000, -1, 90_000),
        QuorumReplica(2, 3000, -1, 90_000),
        QuorumReplica(3, 5000, -1, 60_000),
        QuorumReplica(4, -1),
    )
    found = list(find_quorum_problems(quorum(*voters)))
    assert [(each.subject, each.message) for each in found] == [
        ("voter 2", "is 2000 entries behind"),
        ("voter 3", "had last caught up 30 s ago"),
        ("voter 4", "has not been heard of by the present leader"),
    ]


def test_without_a_controller_nothing_can_be_changed() -> None:
    for told in (quorum(leader_id=-1), ConnectionLostError("nobody")):
        (found,) = find_quorum_problems(told)
        assert (found.severity, found.kind) == (Severity.CRITICAL, "no_controller")


def test_records_that_a_coordinator_skipped_are_a_warning_that_names_the_command() -> None:
    replicas = {
        TopicPartition("__consumer_offsets", 3): ReplicaSize(10, 0, unreadable_records=2),
        TopicPartition("__consumer_offsets", 4): ReplicaSize(10, 0),
    }
    (found,) = find_broker_problems(cluster(1), (), {1: (LogDirView("/a", replicas=replicas),)})
    assert (found.severity, found.kind) == (Severity.WARNING, "unreadable_records")
    assert found.subject == "__consumer_offsets-3"
    assert "2 records" in found.message
    assert "dlog log repair /a" in found.advice


def test_a_corrupt_replica_is_critical() -> None:
    replicas = {
        TopicPartition("t", 0): ReplicaSize(10, 0),
        TopicPartition("t", 1): ReplicaSize(10, 0, is_corrupt=True),
    }
    (found,) = find_broker_problems(cluster(1), (), {1: (LogDirView("/a", replicas=replicas),)})
    assert (found.severity, found.kind, found.subject) == (Severity.CRITICAL, "corrupt_replica", "t-1")
