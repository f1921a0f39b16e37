"""Listening, accepting, too many connections, and the end."""

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import Iterator

import pytest

from distributedlog.broker.net.admission import ServerLimits
from distributedlog.broker.net.connection import Connection
from distributedlog.broker.net.dispatch import Handlers
from distributedlog.broker.net.server import KafkaServer
from distributedlog.model.errors import ConfigError
from distributedlog.settings.addresses import Listener
from distributedlog.settings.node_settings import NodeSettings
from tests.unit.broker.server_stage import (
    PATIENT,
    HurriedClock,
    Later,
    Stage,
    answer,
    asked,
    bare_services,
    run,
)


def test_every_listener_gets_a_port_of_its_own_and_tells_its_name() -> None:
    async def story() -> None:
        async with Stage(PATIENT, None, "INSIDE", "OUTSIDE") as stage:
            assert set(stage.server.addresses) == {"INSIDE", "OUTSIDE"}
            inside, outside = await stage.connect("INSIDE"), await stage.connect("OUTSIDE")
            await inside.ask()
            await outside.ask()
            assert [context.listener for context in stage.contexts] == ["INSIDE", "OUTSIDE"]
            assert sorted(stage.counts.opened) == ["INSIDE", "OUTSIDE"]

    run(story())


def test_a_port_in_use_is_named_and_the_others_are_let_go() -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with socket.create_server(("127.0.0.1", 0)) as probe:
                free_port = probe.getsockname()[1]
            settings = NodeSettings(
                listeners=(Listener("A", "127.0.0.1", free_port), Listener("B", "127.0.0.1", port))
            )
            loop = asyncio.get_running_loop()
            server = KafkaServer(settings, bare_services(settings), loop, handlers=Handlers())
            with pytest.raises(ConfigError, match=f"B://127.0.0.1:{port}"):
                server.start()
            assert server.addresses == {}
            with socket.create_server(("127.0.0.1", free_port)):
                pass

    run(story())


def test_small_answers_leave_at_once_and_dead_peers_are_noticed() -> None:
    async def story() -> None:
        accepted = []
        real_accept = socket.socket.accept

        def accept(self: socket.socket) -> tuple[socket.socket, object]:
            pair = real_accept(self)
            accepted.append(pair[0])
            return pair

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket.socket, "accept", accept)
            async with Stage() as stage:
                await (await stage.connect()).ask()
                assert accepted[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert accepted[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                assert not accepted[0].getblocking()

    run(story())


@pytest.mark.parametrize(
    "limits",
    [ServerLimits(connections_max=3, tick_ms=5), ServerLimits(connections_per_host_max=3, tick_ms=5)],
    ids=["in all", "of one address"],
)
def test_one_connection_too_many_is_closed_at_once_and_a_closed_one_makes_room(limits: ServerLimits) -> None:
    async def story() -> None:
        async with Stage(limits) as stage:
            clients = [await stage.connect() for _ in range(3)]
            for client in clients:
                await client.ask()
            refused = await stage.connect()
            assert await refused.is_cut()
            assert stage.counts.closed == [("PLAINTEXT", "refused")]
            assert await clients[2].ask(correlation_id=1) == (1, 0)
            clients[0].close()
            await stage.counts.until_closed("client gone")
            assert await (await stage.connect()).ask(correlation_id=2) == (2, 0)

    run(story())


@contextlib.contextmanager
def descriptors_at_most(count: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_out_of_descriptors_serves_on_and_accepts_again_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        async with Stage() as stage:
            served = await stage.connect()
            await served.ask()
            port = stage.server.addresses["PLAINTEXT"].port
            with socket.socket() as waiting:
                waiting.setblocking(False)
                highest = max(int(name) for name in os.listdir("/proc/self/fd"))
                with descriptors_at_most(highest), contextlib.suppress(BlockingIOError):
                    filler = []
                    with contextlib.suppress(OSError):
                        while True:
                            filler.append(os.dup(0))
                    await asyncio.get_running_loop().sock_connect(waiting, ("127.0.0.1", port))
                    assert await served.ask(correlation_id=1) == (1, 0)
                    assert len(stage.counts.opened) == 1
                    for descriptor in filler:
                        os.close(descriptor)
                await stage.counts.until(lambda: len(stage.counts.opened) == 2)

    run(story())
    told = [record.getMessage() for record in caplog.records]
    assert told == ["listener PLAINTEXT: cannot accept: Too many open files"], "it rests, and does not spin"


def test_a_thousand_half_open_connections_are_borne_and_cut_off() -> None:
    """The time that they have is the test's to let pass: on a busy machine the first of them would else be
    cut off before the last has come, and a thousand would never be open at once."""

    async def story() -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4096), hard), hard))
        clock = HurriedClock()
        async with Stage(ServerLimits(setup_ms_max=60_000, tick_ms=50), clock=clock) as stage:
            healthy = await stage.connect()
            await healthy.ask()
            for number in range(1000):
                client = await stage.connect()
                await client.send(asked()[: number % 12])
            await stage.counts.until(lambda: len(stage.counts.opened) == 1001)
            assert await healthy.ask(correlation_id=1) == (1, 0)
            assert stage.server.connections == 1001
            clock.ahead_ms = 60_000
            await stage.counts.until(lambda: len(stage.counts.closed) == 1000)
            assert {reason for _, reason in stage.counts.closed} == {"no request", "slow request"}
            assert await healthy.ask(correlation_id=2) == (2, 0)

    run(story())


# --- the end -----------------------------------------------------------------------------------


def test_stopping_answers_what_was_begun_and_begins_nothing_more() -> None:
    async def story() -> None:
        async with Stage() as stage:
            stage.reply = later = Later()
            idle, waiting = await stage.connect(), await stage.connect()
            port = stage.server.addresses["PLAINTEXT"].port
            await idle.send(asked("half")[:10])
            await waiting.send(asked("slow", 1))
            await stage.counts.until(lambda: stage.counts.delayed_now == 1)
            stopping = asyncio.create_task(stage.server.stop(60_000))
            assert await idle.is_cut()
            await waiting.send(asked("too late", 2))
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            later.come("slow", 6)
            assert await waiting.answer() == (1, 6)
            assert await waiting.is_cut()
            await stopping
            assert stage.begun == ["slow"]
            assert {reason for _, reason in stage.counts.closed} == {"drained"}

    run(story())


def test_stopping_waits_no_longer_than_it_is_told() -> None:
    async def story() -> None:
        async with Stage() as stage:
            stage.reply = later = Later()
            client = await stage.connect()
            await client.send(asked("never"))
            await stage.counts.until(lambda: stage.counts.delayed_now == 1)
            await stage.server.stop(20)
            assert later.futures["never"].cancelled()
            assert await client.is_cut()

    run(story())


def test_connections_are_drained_in_the_order_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that is told to the network may depend on where in memory something is."""
    drained: list[int] = []
    drain = Connection.drain

    def note(self: Connection) -> None:
        drained.append(self.connection_id)
        drain(self)

    monkeypatch.setattr(Connection, "drain", note)

    async def story() -> None:
        async with Stage() as stage:
            for _ in range(12):
                await (await stage.connect()).ask()
            await stage.server.stop(60_000)

    run(story())
    assert len(drained) == 12
    assert drained == sorted(drained)


def test_stopping_a_server_without_connections_is_immediate() -> None:
    async def story() -> None:
        async with Stage() as stage:
            stage.reply = lambda request, context: answer(0)
            await stage.server.stop(60_000)

    run(story())
