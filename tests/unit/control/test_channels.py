"""Asking a controller on another node: what every way of failing means to the one who asks."""

import asyncio
from typing import Any

import grpc
import pytest
from grpc.aio import UnaryUnaryMultiCallable

from distributedlog.control import channels
from distributedlog.control.authentication import authenticate
from distributedlog.control.channels import ControllerChannelPool
from distributedlog.control.contract import ControllerReply
from distributedlog.control.conversion.envelope import decode_reply, encode_request
from distributedlog.control.credentials import SUBMIT
from distributedlog.control.server import listen
from distributedlog.control.sessions import Sessions
from distributedlog.controller.requests import (
    DeleteTopicsRequest,
    HeartbeatReply,
    ReadImageRequest,
    Request,
)
from distributedlog.model.errors import (
    ClusterAuthorizationError,
    InvalidRequestError,
    LeadershipLostError,
    MalformedMessageError,
    NotLeaderError,
    OverloadedError,
    RequestTimedOutError,
    UnreachableError,
    UnsupportedVersionError,
)
from distributedlog.ports.executor import Done, Outcome
from tests.ports import free_port
from tests.simulation.clock import SeededRandomness
from tests.unit.control.stage import A_REQUEST, HOST, Controller, Node, ask, credentials, pool_to, run

A_REPLY = HeartbeatReply(
    is_caught_up=True, is_fenced=False, in_controlled_shutdown=False, should_shut_down=False
)


def test_what_is_asked_arrives_with_its_deadline_and_is_answered() -> None:
    async def story() -> None:
        controller = Controller()
        node = await Node(2, controller=controller).start()
        pool = pool_to(node)
        answer = ask(pool, 2, timeout_ms=5_000)
        request, timeout_ms, done = await controller.asked.get()
        assert request == A_REQUEST
        assert 3_000 < timeout_ms <= 5_010  # gRPC sends what is left rounded up, by up to 10 ms
        done(Outcome(ControllerReply(A_REPLY, 77)))
        assert (await answer).value() == ControllerReply(A_REPLY, 77)
        await pool.close()
        await node.stop()

    run(story)


def test_what_the_controller_raises_is_raised_here() -> None:
    async def story() -> None:
        controller = Controller()
        node = await Node(2, controller=controller).start()
        pool = pool_to(node)
        for raised in (
            NotLeaderError("not I", 3),
            LeadershipLostError("who knows"),
            OverloadedError("later"),
        ):
            answer = ask(pool, 2)
            (await controller.asked.get())[2](Outcome(error=raised))
            arrived = (await answer).error
            assert type(arrived) is type(raised)
            assert vars(arrived) == vars(raised)
        await pool.close()
        await node.stop()

    run(story)


def test_a_controller_that_breaks_down_at_work_leaves_the_outcome_unknown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        def submit(self, request: Request, timeout_ms: int, done: Done[ControllerReply]) -> None:
            raise ZeroDivisionError("a defect")

    async def story() -> None:
        node = await Node(2, controller=Broken()).start()
        pool = pool_to(node)
        assert isinstance((await ask(pool, 2)).error, RequestTimedOutError)
        await pool.close()
        await node.stop()

    run(story)
    assert "a defect" in caplog.text


def test_a_node_that_is_no_controller_says_so() -> None:
    async def story() -> None:
        node = await Node(2).start()
        pool = pool_to(node)
        assert isinstance((await ask(pool, 2)).error, NotLeaderError)
        await pool.close()
        await node.stop()

    run(story)


# --- nothing was done --------------------------------------------------------------------------


def test_where_nobody_listens_nothing_was_done() -> None:
    async def story() -> None:
        peers = {2: (HOST, free_port())}
        pool = ControllerChannelPool(credentials(9), peers, randomness=SeededRandomness(1))
        assert isinstance((await ask(pool, 2)).error, UnreachableError)
        assert isinstance((await ask(pool, 2)).error, UnreachableError)  # while gRPC pauses
        assert isinstance((await ask(pool, 3)).error, UnreachableError)  # of no known address
        await pool.close()
        assert isinstance((await ask(pool, 2)).error, UnreachableError)  # closed

    run(story)


def test_where_something_listens_that_never_answers_nothing_was_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection is one only when the other side speaks HTTP/2; the request waits for that."""

    async def story() -> None:
        accepted = asyncio.Event()
        writers: list[asyncio.StreamWriter] = []

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            accepted.set()

        server = await asyncio.start_server(silent, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        pool = ControllerChannelPool(credentials(9), {2: (HOST, port)}, randomness=SeededRandomness(1))
        answer = ask(pool, 2, timeout_ms=300)
        await accepted.wait()
        assert isinstance((await answer).error, UnreachableError)
        await pool.close()
        for writer in writers:
            writer.close()
        server.close()
        await server.wait_closed()

    run(story)


def test_a_node_that_comes_back_is_asked_again() -> None:
    async def story() -> None:
        controller = Controller()
        port = free_port()
        pool = ControllerChannelPool(credentials(9), {2: (HOST, port)}, randomness=SeededRandomness(1))
        assert isinstance((await ask(pool, 2)).error, UnreachableError)
        node = await Node(2, controller=controller).start(port)
        served = asyncio.get_running_loop().create_task(controller.asked.get())
        while not served.done():
            answer = ask(pool, 2)
            waited: set[asyncio.Future[Any]] = {served, answer}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        (await served)[2](Outcome(ControllerReply(None, 1)))
        assert (await answer).value() == ControllerReply(None, 1)
        await pool.close()
        await node.stop()

    run(story)


def test_a_node_that_moved_is_asked_at_its_new_address() -> None:
    async def story() -> None:
        controller = Controller()
        old, new = await Node(3).start(), await Node(2, controller=controller).start()
        pool = ControllerChannelPool(credentials(9), {2: old.address}, randomness=SeededRandomness(1))
        assert isinstance((await ask(pool, 2)).error, ClusterAuthorizationError)  # node 3 answers there
        pool.peers[2] = new.address
        answer = ask(pool, 2)
        (await controller.asked.get())[2](Outcome(ControllerReply(None, 1)))
        assert (await answer).error is None
        await pool.close()
        await old.stop()
        await new.stop()

    run(story)


def test_a_node_of_another_cluster_is_refused() -> None:
    async def story() -> None:
        controller = Controller()
        node = await Node(2, controller=controller).start()
        pool = pool_to(node, cluster_id="another")
        assert isinstance((await ask(pool, 2)).error, ClusterAuthorizationError)
        assert controller.asked.empty()
        ((_, reason, said),) = node.refused
        assert reason == "wrong header"
        assert "belongs to the cluster 'another'" in said
        await pool.close()
        await node.stop()

    run(story)


def test_what_cannot_travel_is_refused_without_a_connection() -> None:
    async def story() -> None:
        node = await Node(2).start()
        pool = pool_to(node)
        too_large = DeleteTopicsRequest(("x" * 60_000,) * 1_000)
        assert isinstance((await ask(pool, 2, too_large)).error, InvalidRequestError)
        assert isinstance((await ask(pool, 2, ReadImageRequest())).error, InvalidRequestError)
        await pool.close()
        await node.stop()

    run(story)


def test_a_server_without_the_service_has_done_nothing() -> None:
    async def story() -> None:
        server = grpc.aio.server()
        sessions = Sessions(credentials(2), lambda *what: None)
        port = await listen(server, HOST, 0)
        pool = ControllerChannelPool(credentials(9), {2: (HOST, port)}, randomness=SeededRandomness(1))
        refused = (await ask(pool, 2)).error
        assert isinstance(refused, ClusterAuthorizationError)
        assert "does not authenticate other nodes" in str(refused)
        server.add_generic_rpc_handlers([sessions.handler()])
        assert isinstance((await ask(pool, 2)).error, UnsupportedVersionError)
        await pool.close()
        await server.stop(None)

    run(story)


def test_no_more_calls_than_allowed_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(channels, "CALLS_MAX", 1)
        controller = Controller()
        node = await Node(2, controller=controller).start()
        pool = pool_to(node)
        first = ask(pool, 2)
        assert isinstance((await ask(pool, 2)).error, OverloadedError)
        (await controller.asked.get())[2](Outcome(ControllerReply(None, 1)))
        assert (await first).error is None
        await pool.close()
        await node.stop()

    run(story)


# --- unknown -----------------------------------------------------------------------------------


def test_a_server_that_goes_down_under_a_request_leaves_its_outcome_unknown() -> None:
    async def story() -> None:
        controller = Controller()
        node = await Node(2, controller=controller).start()
        pool = pool_to(node)
        answer = ask(pool, 2)
        _, _, done = await controller.asked.get()
        await node.stop()
        assert isinstance((await answer).error, RequestTimedOutError)
        done(Outcome(ControllerReply(None, 1)))  # too late, and harmless
        assert controller.asked.empty()  # and nobody asked again
        await pool.close()

    run(story)


def test_a_connection_cut_after_the_request_left_makes_its_outcome_unknown() -> None:
    """A proxy that passes everything on until it is cut, as a network does."""

    async def story() -> None:
        controller = Controller()
        node = await Node(2, controller=controller).start()
        writers: list[asyncio.StreamWriter] = []
        pumps: set[asyncio.Task[None]] = set()

        async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(65536):
                writer.write(data)
            writer.close()

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            behind_reader, behind_writer = await asyncio.open_connection(*node.address)
            writers.extend((writer, behind_writer))
            for ends in ((reader, behind_writer), (behind_reader, writer)):
                pumps.add(asyncio.get_running_loop().create_task(pump(*ends)))

        proxy = await asyncio.start_server(relay, HOST, 0)
        address = HOST, proxy.sockets[0].getsockname()[1]
        pool = ControllerChannelPool(credentials(9), {2: address}, randomness=SeededRandomness(1))
        answer = ask(pool, 2)
        await controller.asked.get()
        proxy.close()
        for writer in writers:
            writer.transport.abort()
        assert isinstance((await answer).error, RequestTimedOutError)
        await pool.close()
        await node.stop()
        await asyncio.gather(*pumps, return_exceptions=True)

    run(story)


def test_a_deadline_that_passes_leaves_the_outcome_unknown() -> None:
    async def story() -> None:
        controller = Controller()
        node = await Node(2, controller=controller).start()
        pool = pool_to(node)
        answer = ask(pool, 2, timeout_ms=200)
        _, timeout_ms, done = await controller.asked.get()
        assert timeout_ms <= 200
        assert isinstance((await answer).error, RequestTimedOutError)
        done(Outcome(ControllerReply(None, 1)))
        await pool.close()
        await node.stop()

    run(story)


def test_closing_answers_every_call_under_way() -> None:
    async def story() -> None:
        controller = Controller()
        node = await Node(2, controller=controller).start()
        pool = pool_to(node)
        answers = [ask(pool, 2) for _ in range(3)]
        for _ in answers:
            await controller.asked.get()
        await pool.close()
        for answer in answers:
            assert isinstance((await answer).error, RequestTimedOutError)
        await node.stop()

    run(story)


def test_an_answer_that_cannot_be_read_leaves_the_outcome_unknown() -> None:
    async def story() -> None:
        async def nonsense(data: bytes, context: object) -> bytes:
            return b"\xff\xff"

        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Submit": grpc.unary_unary_rpc_method_handler(nonsense)
        }
        server = grpc.aio.server()
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("dlog.v1.Controller", methods)])
        server.add_generic_rpc_handlers([Sessions(credentials(2), lambda *what: None).handler()])
        port = await listen(server, HOST, 0)
        pool = ControllerChannelPool(credentials(9), {2: (HOST, port)}, randomness=SeededRandomness(1))
        assert isinstance((await ask(pool, 2)).error, RequestTimedOutError)
        await pool.close()
        await server.stop(None)

    run(story)


# --- hostile callers ---------------------------------------------------------------------------


def test_garbage_and_oversize_are_refused_and_the_next_request_is_served() -> None:
    async def story() -> None:
        controller = Controller()
        node = await Node(2, controller=controller).start()
        pool = pool_to(node)
        channel = grpc.aio.insecure_channel(
            f"{HOST}:{node.port}", options=[("grpc.max_send_message_length", -1)]
        )
        submit: UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(SUBMIT)
        session = await authenticate(channel, credentials(9), 2)
        for garbage in (b"", b"\xff" * 100, bytes(9 * 1024 * 1024)):
            given = session.metadata(SUBMIT, garbage)
            answered = decode_reply(await submit(garbage, metadata=given)).error
            assert isinstance(answered, MalformedMessageError)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await submit(bytes(20 * 1024 * 1024), metadata=session.metadata(SUBMIT))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        answer = ask(pool, 2)
        (await controller.asked.get())[2](Outcome(ControllerReply(None, 1)))
        assert (await answer).error is None
        await channel.close()
        await pool.close()
        await node.stop()

    run(story)


def test_a_caller_that_goes_away_does_not_disturb_the_controller() -> None:
    async def story() -> None:
        controller = Controller()
        node = await Node(2, controller=controller).start()
        pool = pool_to(node)
        channel = grpc.aio.insecure_channel(f"{HOST}:{node.port}")
        submit: UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(SUBMIT)
        data = encode_request(A_REQUEST, pool.identity, 2)
        session = await authenticate(channel, credentials(9), 2)
        call = submit(data, metadata=session.metadata(SUBMIT, data))
        _, timeout_ms, done = await controller.asked.get()
        assert timeout_ms > 60_000  # a caller without a deadline gets one
        call.cancel()
        await channel.close()
        done(Outcome(ControllerReply(None, 1)))
        answer = ask(pool, 2)
        (await controller.asked.get())[2](Outcome(ControllerReply(None, 2)))
        assert (await answer).value().offset == 2
        await pool.close()
        await node.stop()

    run(story)
