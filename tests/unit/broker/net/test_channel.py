"""A channel: what a connection may rely on, of a socket and of a stream in memory alike."""

import asyncio
import contextlib
import os
import random
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributedlog.broker.net.admission import ServerLimits
from distributedlog.broker.net.channel import Channel, SocketChannel
from distributedlog.broker.net.dispatch import HandlerResponse, Handlers
from distributedlog.protocol.codec import join_parts
from distributedlog.protocol.framing import decode_response, encode_request
from distributedlog.protocol.messages.heartbeat import HeartbeatRequest
from distributedlog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.simulation.net.channel import MemoryChannel, pair
from tests.unit.broker.server_stage import (
    PATIENT,
    Client,
    Later,
    MemoryClient,
    MemoryStage,
    answer,
    asked,
    run,
    run_virtually,
)


class Kind(NamedTuple):
    make_pair: Callable[[], tuple[Channel, Channel]]
    reset: Callable[[Any], None]
    run: Callable[[Coroutine[Any, Any, None]], None]


def make_sockets() -> tuple[Channel, Channel]:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    for each in (ours, theirs):
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return SocketChannel(ours, loop), SocketChannel(theirs, loop)


def reset_socket(channel: SocketChannel) -> None:
    channel._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    channel.close()


KINDS = {
    "socket": Kind(make_sockets, reset_socket, run),
    "memory": Kind(lambda: pair(asyncio.get_running_loop()), MemoryChannel.reset, run_virtually),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def told(kind: Kind, story: Callable[[Channel, Channel], Awaitable[None]]) -> None:
    async def whole() -> None:
        ours, theirs = kind.make_pair()
        try:
            await story(ours, theirs)
        finally:
            ours.close()
            theirs.close()

    kind.run(whole())


async def until(notify: Callable[[Callable[[], None] | None], None], times: int = 1) -> None:
    """Waits until the channel has called back so often."""
    called = 0
    done = asyncio.get_running_loop().create_future()

    def call() -> None:
        nonlocal called
        called += 1
        if called == times:
            done.set_result(None)

    notify(call)
    await done
    notify(None)


async def filled(ours: Channel) -> int:
    """Sends until no more is taken; how much was."""
    sent = 0
    while True:
        try:
            sent += ours.send([bytes(100_000)])
        except BlockingIOError:
            return sent


def receive_all(ours: Channel) -> None:
    """Receives to the end of the stream: what came before a reset may be here or not."""
    while ours.receive_into(bytearray(10)):
        pass


def test_what_is_here_is_received_into_one_buffer_and_behind_it_into_the_other(kind: Kind) -> None:
    async def story(ours: Channel, theirs: Channel) -> None:
        first, then = bytearray(4), bytearray(10)
        with pytest.raises(BlockingIOError):
            ours.receive_into(first)
        assert theirs.send([b"abc", b"", b"defg"]) == 7
        await until(ours.notify_readable)
        assert ours.receive_into(first, then) == 7
        assert (bytes(first), bytes(then[:3])) == (b"abcd", b"efg")
        assert theirs.send([b"x"], is_more=True) == theirs.send([b"y"]) == 1
        await until(ours.notify_readable)
        assert ours.receive_into(memoryview(first)[1:]) == 2
        assert bytes(first) == b"axyd"

    told(kind, story)


def test_a_channel_that_is_ready_says_so_again_and_again_until_it_is_told_not_to(kind: Kind) -> None:
    async def story(ours: Channel, theirs: Channel) -> None:
        theirs.send([b"abc"])
        await until(ours.notify_readable, times=5)
        await until(ours.notify_writable, times=5)
        calls: list[str] = []
        ours.notify_readable(lambda: calls.append("readable"))
        ours.notify_writable(lambda: calls.append("writable"))
        ours.notify_readable(None)
        ours.notify_writable(None)
        await until(theirs.notify_writable, times=5)
        assert calls == []

    told(kind, story)


def test_a_full_window_takes_nothing_until_something_was_received(kind: Kind) -> None:
    async def story(ours: Channel, theirs: Channel) -> None:
        sent = await filled(ours)
        received, buffer = 0, bytearray(1 << 20)
        writable = asyncio.create_task(until(ours.notify_writable))
        while received < sent:
            await until(theirs.notify_readable)
            received += theirs.receive_into(buffer)
        await writable
        assert ours.send([b"more"]) == 4

    told(kind, story)


def test_a_region_of_a_file_is_sent_and_the_files_end_is_not_the_streams(
    kind: Kind, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("channel") / "file"
    path.write_bytes(b"0123456789")

    async def story(ours: Channel, theirs: Channel) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            assert ours.send_file(descriptor, 3, 4) == 4
            assert ours.send_file(descriptor, 10, 4) == 0
        finally:
            os.close(descriptor)
        buffer = bytearray(10)
        await until(theirs.notify_readable)
        assert buffer[: theirs.receive_into(buffer)] == b"3456"

    told(kind, story)


def test_who_hangs_up_is_seen_before_what_he_sent_is_received(kind: Kind) -> None:
    async def story(ours: Channel, theirs: Channel) -> None:
        assert not ours.has_hung_up()
        theirs.send([b"last"])
        theirs.close()
        buffer = bytearray(10)
        await until(ours.notify_readable)
        while not ours.has_hung_up():
            await asyncio.sleep(0)
        assert ours.receive_into(buffer) == 4
        assert ours.receive_into(buffer) == 0
        assert ours.receive_into(buffer) == 0

    told(kind, story)


def test_a_reset_is_an_error_in_both_directions(kind: Kind) -> None:
    async def story(ours: Channel, theirs: Channel) -> None:
        theirs.send([b"lost"])
        kind.reset(theirs)
        await until(ours.notify_readable)
        while not ours.has_hung_up():
            await asyncio.sleep(0)
        with pytest.raises(ConnectionError):
            receive_all(ours)
        with pytest.raises(ConnectionError):
            ours.send([b"x"])
        assert ours.has_hung_up()

    told(kind, story)


def test_nobody_is_called_back_after_the_end_and_it_may_be_closed_twice(kind: Kind) -> None:
    async def story(ours: Channel, theirs: Channel) -> None:
        theirs.send([b"abc"])
        ours.notify_readable(lambda: pytest.fail("it is closed"))
        ours.notify_writable(lambda: pytest.fail("it is closed"))
        ours.close()
        ours.close()
        buffer = bytearray(10)
        await until(theirs.notify_readable)
        with contextlib.suppress(ConnectionError):  # a reset: something was unread
            assert theirs.receive_into(buffer) == 0

    told(kind, story)


# --- a server without sockets ----------------------------------------------------------------------


def echoing() -> Handlers:
    """SyncGroup answers as many bytes as the group id has characters."""
    handlers = Handlers()

    @handlers.handles(SyncGroupRequest, versions=(0, 3))
    def sync_group(services: object, request: SyncGroupRequest, context: object) -> HandlerResponse:
        return SyncGroupResponse(assignment=request.group_id.encode())

    return handlers


@given(
    seed=st.integers(0, 2**32),
    window_bytes=st.integers(1, 3000),
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=20),
)
@settings(max_examples=50, deadline=None)
def test_however_small_the_window_and_the_pieces_all_is_answered_in_order(
    seed: int, window_bytes: int, sizes: list[int]
) -> None:
    async def story() -> None:
        async with MemoryStage(PATIENT, echoing()) as stage:
            client = await stage.connect(receive_bytes=window_bytes, seed=seed)
            requests = [
                SyncGroupRequest(
                    group_id="x" * size,
                    generation_id=1,
                    member_id="m",
                    group_instance_id=None,
                    assignments=[],
                )
                for size in sizes
            ]
            stream = b"".join(
                join_parts(encode_request(request, 3, number, "tester"))
                for number, request in enumerate(requests)
            )
            sending = asyncio.create_task(client.send(stream))
            for number, size in enumerate(sizes):
                correlation_id, response = decode_response(SyncGroupResponse, 3, await client.frame())
                assert (correlation_id, response.assignment) == (number, b"x" * size)
            await sending

    run_virtually(story())


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_client_that_goes_away_at_any_byte_ends_its_own_connection_alone(is_reset: bool) -> None:
    stream = asked("first", 1) + asked("second", 2)

    async def story(cut: int) -> None:
        async with MemoryStage() as stage:
            healthy, client = await stage.connect(), await stage.connect()
            assert isinstance(client, MemoryClient)
            await client.send(stream[:cut])
            await asyncio.sleep(0.001)
            if is_reset:
                client.channel.reset()
            else:
                client.channel.close()
            await stage.counts.until_closed("client gone")
            assert await healthy.ask(correlation_id=7) == (7, 0)

    for cut in range(len(stream) + 1):
        run_virtually(story(cut))


def test_a_client_that_has_asked_its_last_and_shuts_down_gets_what_is_decided() -> None:
    async def story() -> None:
        async with MemoryStage() as stage:
            client = await stage.connect()
            assert isinstance(client, MemoryClient)
            await client.send(asked("a", 1) + asked("b", 2))
            client.channel.shut_down()
            assert [await client.answer() for _ in range(2)] == [(1, 0), (2, 0)]
            assert await client.is_cut()

    run_virtually(story())


@pytest.mark.parametrize(
    ("sent", "reason"),
    [(b"", "no request"), (asked()[:9], "slow request"), (asked(), "idle")],
    ids=["nothing", "half a request", "one request"],
)
def test_minutes_pass_at_once_in_virtual_time(sent: bytes, reason: str) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with MemoryStage(ServerLimits()) as stage:
            client = await stage.connect()
            await client.send(sent)
            assert await client.is_cut()
            assert stage.counts.closed == [("PLAINTEXT", reason)]
            limits = ServerLimits()
            expected_ms = limits.idle_ms_max if reason == "idle" else limits.setup_ms_max
            assert 0 <= loop.time() * 1000 - expected_ms <= 2 * limits.tick_ms

    run_virtually(story())


def test_a_reader_that_takes_nothing_is_cut_off_and_its_region_of_a_file_is_not_needed_for_that() -> None:
    async def story() -> None:
        limits = ServerLimits(response_bytes_per_connection_max=1000)
        async with MemoryStage(limits) as stage:
            client = await stage.connect(receive_bytes=200)
            sending = asyncio.create_task(client.send(asked("x") * 1000))
            await stage.counts.until_closed("slow reader")
            with pytest.raises(ConnectionError):
                await sending
            assert asyncio.get_running_loop().time() < 32

    run_virtually(story())


def test_a_story_is_told_the_same_way_twice() -> None:
    def tell() -> list[str]:
        begun: list[str] = []

        async def story() -> None:
            async with MemoryStage() as stage:
                later = Later()
                stage.reply = lambda request, context: reply(request, later)
                chance = random.Random(3)
                clients = [await stage.connect(receive_bytes=50, seed=number) for number in range(5)]
                names = [f"{number}/{again}" for number in range(5) for again in range(10)]
                sending = [
                    asyncio.create_task(
                        client.send(b"".join(map(asked, names[10 * number : 10 * number + 10])))
                    )
                    for number, client in enumerate(clients)
                ]
                waiting = asyncio.gather(*map(take_all, clients))
                while not waiting.done():
                    open_names = [name for name, each in later.futures.items() if not each.done()]
                    if open_names:
                        later.come(chance.choice(open_names))
                    await asyncio.sleep(0.001)
                await asyncio.gather(*sending)
                assert sorted(stage.begun) == sorted(names)
                begun.extend(stage.begun)

        async def take_all(client: Client) -> None:
            for _ in range(10):
                await client.answer()

        def reply(request: HeartbeatRequest, later: Later) -> HandlerResponse:
            return answer(0) if request.group_id.endswith(("3", "7")) else later(request, None)  # type: ignore[arg-type]

        run_virtually(story())
        return begun

    assert tell() == tell()
