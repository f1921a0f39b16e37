"""Partitions move to other brokers while they are written to; controllers and new replicas fail meanwhile."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributedlog.cli.main import main
from distributedlog.client.admin.blocking import BlockingAdmin
from distributedlog.client.options import ClientOptions
from distributedlog.model.errors import NoReassignmentError
from distributedlog.model.ids import TopicPartition
from tests.chaos.moves import Moves
from tests.system.dev_cluster import DevCluster
from tests.system.replication.stage import PATIENCE_SECONDS, Replicated, numbered, wait_until


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicated]:
    directory = tmp_path_factory.mktemp("moving")
    arguments = ("--brokers", 3, "--data-dir", directory / "data", "--port", 0, "--no-gateway")
    with DevCluster(directory / "ready.json", *arguments) as cluster:
        yield Replicated(cluster, directory / "data")


@pytest.fixture
def admin(replicated: Replicated) -> Iterator[BlockingAdmin]:
    with BlockingAdmin(replicated.bootstrap, ClientOptions(request_timeout_ms=60_000)) as admin:
        yield admin


def replicas_of(admin: BlockingAdmin, topic: str) -> tuple[int, ...]:
    (view,) = admin.describe_topics([topic])
    return tuple(view.partitions[0].replicas)


def move(admin: BlockingAdmin, topic: str, *target: int) -> None:
    """Begins a move, or cancels it if no target is given."""
    name = TopicPartition(topic, 0)
    assert admin.alter_reassignments({name: target or None}) == {name: None}


def test_a_partition_moves_by_a_plan_with_all_that_it_holds(
    replicated: Replicated, admin: BlockingAdmin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = replicated.create(1)
    assert replicated.produce(topic, numbered(0, 200)) == [None] * 200
    plan = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [3, 2]}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    arguments = ["cluster", "reassign", "--bootstrap", replicated.bootstrap]
    assert main([*arguments, "--plan", str(tmp_path / "plan.json")]) == 0
    before = json.loads(capsys.readouterr().out.splitlines()[0])
    assert before["partitions"] == [{"topic": topic, "partition": 0, "replicas": [1]}]
    wait_until(lambda: replicas_of(admin, topic) == (3, 2), "who is asked has heard of it")
    wait_until(lambda: replicated.leader(topic) == 3, "the new preferred leader leads")
    wait_until(lambda: not replicated.replica(1, topic).exists(), "the old replica is deleted")
    assert replicated.produce(topic, numbered(200, 50)) == [None] * 50
    assert replicated.read(topic, 250) == numbered(0, 250)
    replicated.check_identical(topic, replicas=2)
    assert main([*arguments, "--cancel"]) == 0, "nothing is being moved"


def test_a_topic_gets_more_replicas_by_a_command_and_fewer_again(
    replicated: Replicated, admin: BlockingAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = replicated.create(2)
    assert replicated.produce(topic, numbered(0, 200)) == [None] * 200
    alter = ["topic", "alter", topic, "--bootstrap", replicated.bootstrap, "--replication-factor"]
    assert main([*alter, "3", "--dry-run"]) == 0
    assert f"{topic}  replication factor: 1 would become 3" in capsys.readouterr().out
    assert main([*alter, "4"]) != 0
    assert "4 replicas need more brokers" in capsys.readouterr().err
    assert main([*alter, "3", "--throttle", "100000000"]) == 0
    assert f"{topic}  replication factor: 1 became 3" in capsys.readouterr().out
    wait_until(lambda: set(replicas_of(admin, topic)) == {1, 2, 3}, "who is asked has heard of it")
    assert replicas_of(admin, topic)[0] == 2
    assert replicated.produce(topic, numbered(200, 50)) == [None] * 50
    replicated.check_identical(topic)
    throttles = ("replication.throttled.replicas",)
    own = {each.name: each for each in admin.topic_configs(topic) or ()}
    assert not [name for name in own if name.endswith(throttles) and own[name].is_set_on_topic]

    assert main([*alter, "1", "-o", "json"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["after"] for line in told] == ["1"]
    wait_until(lambda: replicas_of(admin, topic) == (2,), "the preferred leader has it alone")
    assert replicated.read(topic, 250) == numbered(0, 250)


def test_a_move_whose_new_replica_is_stopped_goes_on_under_another_controller(
    replicated: Replicated, admin: BlockingAdmin
) -> None:
    controller = admin.describe_quorum().leader_id
    source, target = (each for each in replicated.brokers if each != controller)
    topic = replicated.create(source, **{"min.insync.replicas": "1"})
    replicated.produce(topic, numbered(0, 100))
    replicated.signal(target, signal.SIGSTOP)
    try:
        move(admin, topic, target)
        assert admin.list_reassignments()[TopicPartition(topic, 0)].adding == (target,)
        assert replicated.produce(topic, numbered(100, 10)) == [None] * 10, "it is written to meanwhile"
        replicated.signal(controller, signal.SIGKILL)
    finally:
        replicated.signal(target, signal.SIGCONT)
    wait_until(lambda: replicas_of(admin, topic) == (target,), "the move has ended")
    assert replicated.read(topic, 110) == numbered(0, 110)


def test_a_move_that_is_cancelled_leaves_all_as_it_was(replicated: Replicated, admin: BlockingAdmin) -> None:
    everywhere = replicated.create(1, 2, 3)  # who was killed is back: with another stopped there is a quorum
    assert replicated.produce(everywhere, numbered(0, 1)) == [None]
    replicated.wait_for_isr(everywhere, [1, 2, 3])
    controller = admin.describe_quorum().leader_id
    first, target = (each for each in replicated.brokers if each != controller)
    topic = replicated.create(first, controller)
    replicated.produce(topic, numbered(0, 20))
    replicated.signal(target, signal.SIGSTOP)
    try:
        move(admin, topic, controller, target)
        move(admin, topic)
        wait_until(lambda: replicas_of(admin, topic) == (first, controller), "who is asked has heard of it")
        assert admin.list_reassignments() == {}
        wait_until(lambda: replicated.leader(topic) == first, "the one that led before leads")
        (refused,) = admin.alter_reassignments({TopicPartition(topic, 0): None}).values()
        assert isinstance(refused, NoReassignmentError)
    finally:
        replicated.signal(target, signal.SIGCONT)
    wait_until(lambda: not replicated.replica(target, topic).exists(), "nothing is left of the new replica")
    assert replicated.read(topic, 20) == numbered(0, 20)


def test_who_judges_moves_sees_one_that_does_not_end_and_one_that_nobody_asked_for(
    replicated: Replicated, admin: BlockingAdmin
) -> None:
    source, target, other = replicated.brokers
    topic = replicated.create(source, **{"min.insync.replicas": "1"})
    name, moves = TopicPartition(topic, 0), Moves(replicated.bootstrap, ClientOptions())
    assert moves.find_present([topic]) == [name]
    replicated.signal(target, signal.SIGSTOP)
    try:
        assert moves.move(name, (target,))
        assert [each.name for each in moves.judge(0.0)] == ["move stuck"]
    finally:
        replicated.signal(target, signal.SIGCONT)
    assert moves.judge(PATIENCE_SECONDS) == [], "it has ended, and was moved back"
    wait_until(lambda: replicas_of(admin, topic) == (source,), "who is asked has heard of it")
    move(admin, topic, other)
    wait_until(lambda: replicas_of(admin, topic) == (other,), "the move has ended")
    assert "move went wrong" in [each.name for each in moves.judge(PATIENCE_SECONDS)]
