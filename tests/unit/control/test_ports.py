import asyncio
import socket

from distributedlog.control.ports import ADDRESSES_MAX, all_refuse
from tests.ports import free_port

LOOPBACK = "127.0.0.1"


def test_where_nobody_listens_the_port_refuses() -> None:
    assert asyncio.run(all_refuse([(LOOPBACK, free_port())]))


def test_one_that_listens_is_enough_also_if_it_never_accepts() -> None:
    with socket.socket() as stopped:
        stopped.bind((LOOPBACK, 0))
        stopped.listen()
        addresses = [(LOOPBACK, free_port()), (LOOPBACK, stopped.getsockname()[1])]
        assert not asyncio.run(all_refuse(addresses))
        assert asyncio.run(all_refuse(addresses[:1]))


def test_of_nobody_of_too_many_and_of_a_bad_name_nothing_is_known() -> None:
    assert not asyncio.run(all_refuse([]))
    assert not asyncio.run(all_refuse([(LOOPBACK, free_port())] * (ADDRESSES_MAX + 1)))
    assert not asyncio.run(all_refuse([("a..b", 9092)]))
