"""The TCP transport between real sockets on loopback."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from distributedlog.ports.randomness import SeededRandomness
from distributedlog.ports.tcp_transport import MESSAGE_BYTES_MAX, Address, TcpTransport


class Inbox:
    def __init__(self, transport: TcpTransport) -> None:
        self.messages: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        transport.on_receive(lambda sender, message: self.messages.put_nowait((sender, message)))

    async def take(self) -> tuple[int, bytes]:
        async with asyncio.timeout(10):
            return await self.messages.get()


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await story()

    asyncio.run(bounded())


async def start(node_id: int, peers: dict[int, Address] | None = None) -> tuple[TcpTransport, Inbox, Address]:
    transport = TcpTransport(node_id, peers or {}, SeededRandomness(node_id))
    return transport, Inbox(transport), await transport.listen()


async def keep_sending(sender: TcpTransport, node_id: int, message: bytes, inbox: Inbox) -> tuple[int, bytes]:
    """As whoever needs an answer does: again and again until something arrives."""
    while inbox.messages.empty():
        sender.send(node_id, message)
        await asyncio.sleep(0.01)
    return await inbox.take()


def test_messages_arrive_in_order_with_their_sender() -> None:
    async def story() -> None:
        two, inbox, address = await start(2)
        one, _, _ = await start(1, {2: address})
        sent = [bytes([number]) * number * 1000 for number in range(50)]
        for message in sent:
            one.send(2, message)
        assert [await inbox.take() for _ in sent] == [(1, message) for message in sent]
        one.close()
        two.close()

    run(story)


def test_a_peer_that_comes_back_is_found_again() -> None:
    async def story() -> None:
        two, inbox, address = await start(2)
        one, _, _ = await start(1, {2: address})
        assert await keep_sending(one, 2, b"first", inbox) == (1, b"first")
        two.close()
        back, inbox, address = await start(2)
        one.peers[2] = address
        assert (await keep_sending(one, 2, b"again", inbox))[1] == b"again"
        one.close()
        back.close()

    run(story)


def test_a_peer_that_is_not_there_costs_nothing_and_raises_nothing() -> None:
    async def story() -> None:
        gone, _, address = await start(2)
        gone.close()
        one, _, _ = await start(1, {2: address})
        for _ in range(100):
            one.send(2, b"anybody?")
        one.send(99, b"nobody is called that")
        await asyncio.sleep(0)
        one.close()

    run(story)


def test_a_message_over_the_bound_is_refused_where_it_is_sent_and_where_it_arrives() -> None:
    async def story() -> None:
        two, inbox, address = await start(2)
        one, _, _ = await start(1, {2: address})
        with pytest.raises(ValueError, match="over the"):
            one.send(2, bytes(MESSAGE_BYTES_MAX + 1))
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"DLT1" + (7).to_bytes(4, "big") + (MESSAGE_BYTES_MAX + 1).to_bytes(4, "big"))
        assert await reader.read() == b""  # cut, before anything was allocated
        writer.close()
        assert (await keep_sending(one, 2, b"others are served", inbox))[1] == b"others are served"
        one.close()
        two.close()

    run(story)


def test_whoever_does_not_say_hello_is_not_listened_to() -> None:
    async def story() -> None:
        two, inbox, address = await start(2)
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
        assert inbox.messages.empty()
        two.close()

    run(story)
