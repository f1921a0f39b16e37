"""Messages of consensus over real streams on loopback."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc.aio import StreamUnaryMultiCallable

from distributedlog.control import transport as transport_module
from distributedlog.control._generated import common_pb2
from distributedlog.control._generated import raft_pb2 as pb
from distributedlog.control.authentication import authenticate
from distributedlog.control.contract import Identity
from distributedlog.control.conversion.envelope import header
from distributedlog.control.credentials import EXCHANGE
from distributedlog.control.services import RaftService
from distributedlog.control.sessions import Session
from distributedlog.control.transport import GrpcTransport
from tests.ports import free_port
from tests.simulation.clock import SeededRandomness
from tests.unit.control.stage import CLUSTER, HOST, Node, credentials, run


async def keep_sending(sender: GrpcTransport, node_id: int, message: bytes, inbox: Node) -> tuple[int, bytes]:
    """Sends as whoever needs an answer does: again and again until something arrives."""
    arrived = asyncio.get_running_loop().create_task(inbox.inbox.get())
    while not arrived.done():
        sender.send(node_id, message)
        await asyncio.wait({arrived}, timeout=0.01)
    return await arrived


def test_messages_arrive_in_order_with_their_sender() -> None:
    async def story() -> None:
        one, two = await Node(1).start(), await Node(2).start()
        one.transport.peers[2] = two.address
        two.transport.peers[1] = one.address
        sent = [bytes([number]) * number * 1000 for number in range(50)]
        for message in sent:
            one.transport.send(2, message)
        assert [await two.inbox.get() for _ in sent] == [(1, message) for message in sent]
        two.transport.send(1, b"back")
        assert await one.inbox.get() == (2, b"back")
        await one.stop()
        await two.stop()

    run(story)


def test_a_peer_that_comes_back_is_found_again() -> None:
    async def story() -> None:
        one, two = await Node(1).start(), await Node(2).start()
        one.transport.peers[2] = two.address
        assert await keep_sending(one.transport, 2, b"first", two) == (1, b"first")
        await two.stop()
        for _ in range(3):
            one.transport.send(2, b"lost")
        again = await Node(2).start(two.port)
        assert (await keep_sending(one.transport, 2, b"second", again))[0] == 1
        await one.stop()
        await again.stop()

    run(story)


def test_a_peer_that_moved_is_found_at_its_new_address() -> None:
    async def story() -> None:
        one, old, new = await Node(1).start(), await Node(2).start(), await Node(2).start()
        one.transport.peers[2] = old.address
        assert await keep_sending(one.transport, 2, b"old", old) == (1, b"old")
        one.transport.peers[2] = new.address
        assert await keep_sending(one.transport, 2, b"new", new) == (1, b"new")
        del one.transport.peers[2]
        one.transport.send(2, b"to nobody")
        await one.stop()
        await old.stop()
        await new.stop()

    run(story)


@pytest.fixture
def greeted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Who opened a stream anywhere, in order."""
    senders: list[int] = []
    check = RaftService._check_voter

    def counted(service: RaftService, session: Session) -> None:
        senders.append(session.node_id)
        check(service, session)

    monkeypatch.setattr(RaftService, "_check_voter", counted)
    return senders


def test_a_stream_is_replaced_when_it_is_old_and_nothing_is_lost(greeted: list[int]) -> None:
    async def story() -> None:
        one, two = await Node(1, stream_life_s=0).start(), await Node(2).start()
        one.transport.peers[2] = two.address
        for number in range(20):
            one.transport.send(2, b"%d" % number)
            assert await two.inbox.get() == (1, b"%d" % number)
        await one.stop()
        await two.stop()

    run(story)
    assert len(greeted) > 1


def test_a_server_that_stops_ends_the_streams_at_once_and_keeps_what_came() -> None:
    async def story() -> None:
        one, two = await Node(1).start(), await Node(2).start()
        one.transport.peers[2] = two.address
        assert await keep_sending(one.transport, 2, b"first", two) == (1, b"first")
        await two.stop(grace_s=20)
        again = await Node(2).start(two.port)
        assert await keep_sending(one.transport, 2, b"second", again) == (1, b"second")
        await one.stop()
        await again.stop()

    run(story)


def test_nobody_there_blocks_or_raises_nothing() -> None:
    async def story() -> None:
        one = Node(1)
        one.transport.peers[2] = (HOST, free_port())
        for _ in range(1_000):
            one.transport.send(2, b"x" * 1_000)
            one.transport.send(3, b"unknown")
        one.transport.close()
        one.transport.send(2, b"closed")
        await one.stop()

    run(story)


def test_what_waits_is_bounded_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(transport_module, "QUEUE_BYTES_MAX", 100)
        one, two = await Node(1).start(), await Node(2).start()
        one.transport.peers[2] = two.address
        for number in range(50):  # all before the first can leave
            one.transport.send(2, b"%010d" % number)
        assert [await two.inbox.get() for _ in range(10)] == [(1, b"%010d" % n) for n in range(40, 50)]
        await one.stop()
        await two.stop()

    run(story)


def test_a_message_too_large_is_dropped_with_a_word_and_the_others_go(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        one, two = await Node(1).start(), await Node(2).start()
        one.transport.peers[2] = two.address
        for _ in range(3):
            one.transport.send(2, bytes(transport_module.RAFT_MESSAGE_BYTES_MAX + 1))
        largest = bytes(transport_module.RAFT_MESSAGE_BYTES_MAX)
        one.transport.send(2, largest)
        assert await two.inbox.get() == (1, largest)
        await one.stop()
        await two.stop()

    run(story)
    assert caplog.text.count("over the") == 1


def test_a_node_of_another_cluster_is_refused_and_both_say_so_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        monkeypatch.setattr(transport_module, "PAUSE_REFUSED_MS", (1, 2))
        one, two = await Node(1, cluster_id="another").start(), await Node(2).start()
        three = await Node(3).start()
        one.transport.peers[2] = three.transport.peers[2] = two.address
        # It was refused three times, and tries again.
        while len(two.refused) < 4 or "does not take our messages" not in caplog.text:
            one.transport.send(2, b"spoof")
            assert await keep_sending(three.transport, 2, b"ours", two) == (3, b"ours")
        assert {sender for sender, _ in _drained(two)} <= {3}
        assert {reason for _, reason, _ in two.refused} == {"wrong header"}
        for node in (one, two, three):
            await node.stop()

    run(story)
    assert caplog.text.count("does not take our messages") == 1


def _drained(node: Node) -> list[tuple[int, bytes]]:
    return [node.inbox.get_nowait() for _ in range(node.inbox.qsize())]


@pytest.mark.parametrize(
    ("frames", "status"),
    [
        ([b"\xff\xff"], grpc.StatusCode.INVALID_ARGUMENT),
        ([pb.RaftFrame(message=b"no hello").SerializeToString()], grpc.StatusCode.INVALID_ARGUMENT),
        ([pb.RaftFrame().SerializeToString()], grpc.StatusCode.INVALID_ARGUMENT),
        (
            [pb.RaftFrame(hello=header(Identity(CLUSTER, 1), 2)).SerializeToString()] * 2,
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        (
            [pb.RaftFrame(hello=header(Identity(CLUSTER, 1), 3)).SerializeToString()],
            grpc.StatusCode.FAILED_PRECONDITION,
        ),
        (
            [
                pb.RaftFrame(
                    hello=common_pb2.Header(version=9, version_required=9, cluster_id=CLUSTER, sender_id=1)
                ).SerializeToString()
            ],
            grpc.StatusCode.UNIMPLEMENTED,
        ),
        ([bytes(20 * 1024 * 1024)], grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
    ids=["garbage", "no hello", "empty", "two hellos", "another node", "newer", "oversize"],
)
def test_a_stream_that_makes_no_sense_is_refused(frames: list[bytes], status: grpc.StatusCode) -> None:
    async def story() -> None:
        node = await Node(2).start()
        channel = grpc.aio.insecure_channel(
            f"{HOST}:{node.port}", options=[("grpc.max_send_message_length", -1)]
        )
        exchange: StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(EXCHANGE)

        async def given() -> AsyncIterator[bytes]:
            for frame in frames:
                yield frame

        session = await authenticate(channel, credentials(1), 2)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await exchange(given(), metadata=session.metadata(EXCHANGE))
        assert refused.value.code() is status
        assert node.inbox.empty()
        await channel.close()
        await node.stop()

    run(story)


def test_transports_draw_their_pauses_from_the_randomness_they_are_given() -> None:
    async def story() -> None:
        drawn = asyncio.Event()

        class Watched(SeededRandomness):
            def between(self, low: int, high: int) -> int:
                drawn.set()
                return super().between(low, high)

        transport = GrpcTransport(credentials(1), {2: (HOST, free_port())}, randomness=Watched(1))
        transport.send(2, b"lost")
        await drawn.wait()
        transport.close()
        await transport.closed()

    run(story)
