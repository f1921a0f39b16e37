"""Groups of real clients: members come, go and are killed, and so is their coordinator."""

import signal
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.ports import free_port
from tests.system.group_load import GroupLoad, judge
from tests.system.server_process import ServerProcess

TOPIC, PARTITIONS, GROUP = "orders", 6, "workers"
SETTINGS = {
    "num.partitions": PARTITIONS,
    "group.min.session.timeout.ms": 1_000,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 8,
    "controller.quorum.election.timeout.ms": 400,
}
PROGRAMS = ("grouping", "grouping_asyncio", "grouping_python")
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.mark.timeout(300)
def test_three_kinds_of_clients_share_a_group_while_members_come_go_and_are_killed(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "node", SETTINGS) as node:
        bootstrap = node.facts["client"]
        with GroupLoad(bootstrap, TOPIC, PARTITIONS, tmp_path) as load:
            load.start("producing", "p1")
            load.wait_for(acks=1)
            names = [f"{GROUP}.m{at}.range" for at in range(3)]
            for program, name in zip(PROGRAMS, names, strict=True):
                load.start(program, name)
            load.wait_for_owners(*names, least=2)
            load.kill(names[0])
            load.wait_for_owners(*names[1:], least=3)
            load.start("grouping", f"{GROUP}.m3.range")
            load.wait_for_owners(*names[1:], f"{GROUP}.m3.range", least=2)
            load.leave(names[1])
            load.wait_for_owners(names[2], f"{GROUP}.m3.range", least=3)
            judge(load, bootstrap, GROUP, TOPIC, PARTITIONS)
        assert node.stop() == 0


@pytest.mark.timeout(300)
def test_a_cooperative_group_goes_on_while_members_come_go_and_are_killed(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "node", SETTINGS) as node:
        bootstrap = node.facts["client"]
        with GroupLoad(bootstrap, TOPIC, PARTITIONS, tmp_path) as load:
            load.start("producing", "p1")
            load.wait_for(acks=1)
            names = [f"{GROUP}.m{at}.cooperative-sticky" for at in range(4)]
            for number, name in enumerate(names):
                load.start("grouping", name)
                load.wait_for(1, names[: number + 1])
            load.kill(names[0])
            load.leave(names[1])
            load.wait_for(1, names[2:])
            judge(load, bootstrap, GROUP, TOPIC, PARTITIONS)
        assert node.stop() == 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", ["grouping_python", "grouping", "grouping_own"])
def test_a_coordinator_that_is_killed_forgets_nothing(tmp_path: Path, first: str) -> None:
    settings = {**SETTINGS, "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}"}
    with ServerProcess(tmp_path / "node", settings) as node:
        bootstrap = node.facts["client"]
        with GroupLoad(bootstrap, TOPIC, PARTITIONS, tmp_path) as load:
            load.start("producing", "p1")
            load.wait_for(acks=1)
            names = [f"{GROUP}.m{at}.roundrobin" for at in range(3)]
            load.start(first, names[0])
            load.wait_for(1, names[:1])
            for number in range(4):
                assert node.stop(signal.SIGKILL) == -signal.SIGKILL
                node.restart()
                if number in (1, 2):  # it joins a group that its coordinator has just read back
                    load.start("grouping_asyncio", names[number])
                load.wait_for(20, names[: min(number, 2) + 1])
            judge(load, bootstrap, GROUP, TOPIC, PARTITIONS)
        assert node.stop() == 0


@pytest.mark.timeout(120)
def test_a_static_member_that_restarts_causes_no_rebalance(tmp_path: Path) -> None:
    assigned: list[str] = []

    def member(bootstrap: str, name: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "group.instance.id": name,
                "session.timeout.ms": 30_000,
                "heartbeat.interval.ms": 200,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([TOPIC], on_assign=lambda _, given: assigned.append(f"{name} {len(given)}"))
        return consumer

    def poll_until(consumers: list[Consumer], count: int) -> None:
        while len(assigned) < count:
            for consumer in consumers:
                consumer.poll(0.05)

    with ServerProcess(tmp_path / "node", SETTINGS) as node:
        bootstrap = node.facts["client"]
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce(TOPIC, b"v")
        producer.flush()
        first = member(bootstrap, "i0")
        poll_until([first], 1)
        second = member(bootstrap, "i1")
        poll_until([first, second], 3)
        assert sorted(assigned[1:]) == ["i0 3", "i1 3"]
        second.close()  # a static member does not say that it goes
        again = member(bootstrap, "i1")
        poll_until([first, again], 4)
        assert assigned[3:] == ["i1 3"], "the other heard nothing of it"
        for _ in range(20):
            first.poll(0.05)
        assert len(assigned) == 4
        first.close()
        again.close()
        assert node.stop() == 0
