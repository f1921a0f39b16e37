"""A cluster grows from one broker to four: its groups' offsets come to be on three of them, by themselves."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from distributedlog.client.faces.blocking_admin import Admin
from distributedlog.model.ids import TopicPartition
from distributedlog.model.internal_topics import OFFSETS_TOPIC
from tests.ports import free_port
from tests.system.replication.stage import wait_until
from tests.system.server_process import ServerProcess, dlog, options, secret_in

MACHINES = {1: "a", 2: "a", 3: "b", 4: "c"}


class Growing:
    """A node that votes alone, and brokers that join it."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._port = free_port()
        self._common: dict[str, object] = {
            "cluster.id": "growing",
            "cluster.secret.file": secret_in(directory),
            "controller.quorum.voters": f"1@127.0.0.1:{self._port}",
        }
        self.nodes: dict[int, ServerProcess] = {}

    def start(self, *node_ids: int) -> None:
        started = {each: self._make(each) for each in node_ids}
        for node in started.values():
            node.wait_until_ready()
        self.nodes |= started

    def _make(self, node_id: int) -> ServerProcess:
        roles = "broker,controller" if node_id == 1 else "broker"
        settings = {**self._common, "node.id": node_id, "process.roles": roles}
        settings["broker.host"] = f"machine-{MACHINES[node_id]}"
        if node_id == 1:
            settings["control.listener"] = f"127.0.0.1:{self._port}"
            settings["offsets.topic.num.partitions"] = 12
        node = ServerProcess(self._directory / str(node_id), settings, waits=False)
        formatted = dlog("server", "format", *options(node.settings))
        assert formatted.returncode == 0, formatted.stderr
        return self._stack.enter_context(node)

    @property
    def bootstrap(self) -> str:
        return ",".join(each.facts["client"] for each in self.nodes.values())


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Growing]:
    with ExitStack() as stack:
        yield Growing(tmp_path, stack)


def test_offsets_of_groups_are_on_three_machines_once_others_have_joined(growing: Growing) -> None:
    growing.start(1)
    with Admin(growing.bootstrap) as admin:
        assert dlog("topic", "create", "orders", "--bootstrap", growing.bootstrap).returncode == 0
        place = TopicPartition("orders", 0)
        groups = {f"group-{number}": number for number in range(8)}
        for group, offset in groups.items():
            admin.alter_group_offsets(group, {place: offset})
        switch = ("cluster", "config", "set", "--bootstrap", growing.bootstrap)
        assert dlog(*switch, "internal.topics.grow.enable=false").returncode == 0
        growing.start(2, 3, 4)  # which one comes first must not matter
        assert dlog(*switch, "internal.topics.grow.enable=true").returncode == 0

        def spread() -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
            (topic,) = [each for each in admin.list_topics(with_internal=True) if each.name == OFFSETS_TOPIC]
            return [(each.replicas, each.isr) for each in topic.partitions]

        wait_until(lambda: all(len(isr) == 3 for _, isr in spread()), "every partition is on three")
        for replicas, _ in spread():
            assert {MACHINES[each] for each in replicas} == {"a", "b", "c"}
        assert admin.list_reassignments() == {}
        assert admin.list_broker_hosts() == {each: f"machine-{MACHINES[each]}" for each in MACHINES}
        shown = dlog("cluster", "info", "--bootstrap", growing.bootstrap).stdout
        assert "machine-b" in shown
        assert "__consumer_offsets" not in dlog("cluster", "health", "--bootstrap", growing.bootstrap).stdout
        for group, offset in groups.items():
            assert admin.group_offsets(group)[place].offset == offset
