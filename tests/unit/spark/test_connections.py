"""Connections are kept from task to task, and not shared with a forked process."""

import os
import threading
from collections.abc import Iterator

import pytest

from distributedlog.client.connection import Connection
from distributedlog.spark import connections
from distributedlog.spark.connections import LINKS_MAX, Link, close_links, link_to
from tests.unit.client.stage import QUICK, ScriptedBroker


@pytest.fixture(autouse=True)
def no_links_left() -> Iterator[None]:
    yield
    close_links()


def reached(link: Link) -> Connection:
    async def reach() -> Connection:
        await link.cluster.refresh(["t"])
        return await link.cluster.any_connection()

    return link.run(reach())


def test_a_link_is_kept_for_the_next_task() -> None:
    with (broker := ScriptedBroker(topics={"t": 1})).running():
        first = link_to(broker.bootstrap, QUICK)
        connection = reached(first)
        again = link_to(broker.bootstrap, QUICK)
        assert again is first
        assert reached(again) is connection
        assert link_to(broker.bootstrap, QUICK, "another purpose") is not first
        close_links()
        assert connection.is_closed


def test_every_thread_has_its_own() -> None:
    found: list[Link] = []
    thread = threading.Thread(target=lambda: found.append(link_to("127.0.0.1:1", QUICK)))
    thread.start()
    thread.join()
    assert found[0] is not link_to("127.0.0.1:1", QUICK)


def test_the_one_unused_for_longest_is_closed_when_there_are_too_many() -> None:
    kept = link_to("127.0.0.1:1", QUICK)
    for number in range(LINKS_MAX + 10):
        link_to("127.0.0.1:1", QUICK, f"{number}")
        assert link_to("127.0.0.1:1", QUICK) is kept
    assert len(connections._links) == LINKS_MAX


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_makes_its_own_and_leaves_its_parents_alone() -> None:
    with (broker := ScriptedBroker(topics={"t": 1})).running():
        link = link_to(broker.bootstrap, QUICK)
        connection = reached(link)
        child = os.fork()
        if child == 0:
            code = 9
            try:
                mine = link_to(broker.bootstrap, QUICK)
                is_mine = mine is not link and reached(mine) is not connection
                code = 0 if is_mine and link in connections._left_alone else 1
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert reached(link) is connection, "the parent's is as it was"
