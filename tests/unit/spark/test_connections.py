"""Connections are kept from task to task, and not shared with a forked process."""

import os
import threading
from collections.abc import Iterator

import pytest

from distributedlog.client.connection import Connection
from distributedlog.spark import connections
from distributedlog.spark.connections import CLUSTERS_MAX, ConnectedCluster, close_connections, connect
from tests.unit.client.stage import QUICK, ScriptedBroker


@pytest.fixture(autouse=True)
def no_links_left() -> Iterator[None]:
    yield
    close_connections()


def reached(connected: ConnectedCluster) -> Connection:
    async def reach() -> Connection:
        await connected.cluster.refresh(["t"])
        return await connected.cluster.any_connection()

    return connected.run(reach())


def test_a_link_is_kept_for_the_next_task() -> None:
    with (broker := ScriptedBroker(topics={"t": 1})).running():
        first = connect(broker.bootstrap, QUICK)
        connection = reached(first)
        again = connect(broker.bootstrap, QUICK)
        assert again is first
        assert reached(again) is connection
        assert connect(broker.bootstrap, QUICK, "another purpose") is not first
        close_connections()
        assert connection.is_closed


def test_every_thread_has_its_own() -> None:
    found: list[ConnectedCluster] = []
    thread = threading.Thread(target=lambda: found.append(connect("127.0.0.1:1", QUICK)))
    thread.start()
    thread.join()
    assert found[0] is not connect("127.0.0.1:1", QUICK)


def test_the_one_unused_for_longest_is_closed_when_there_are_too_many() -> None:
    kept = connect("127.0.0.1:1", QUICK)
    for number in range(CLUSTERS_MAX + 10):
        connect("127.0.0.1:1", QUICK, f"{number}")
        assert connect("127.0.0.1:1", QUICK) is kept
    assert len(connections._clusters) == CLUSTERS_MAX


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_makes_its_own_and_leaves_its_parents_alone() -> None:
    with (broker := ScriptedBroker(topics={"t": 1})).running():
        connected = connect(broker.bootstrap, QUICK)
        connection = reached(connected)
        child = os.fork()
        if child == 0:
            code = 9
            try:
                mine = connect(broker.bootstrap, QUICK)
                is_mine = mine is not connected and reached(mine) is not connection
                code = 0 if is_mine and connected in connections._left_alone else 1
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert reached(connected) is connection, "the parent's is as it was"
