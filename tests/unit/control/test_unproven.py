"""Members of an earlier version, which prove nothing: accepted only if that is asked for."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from distributedlog.control._generated import controller_pb2 as pb
from distributedlog.control.authentication import UnprovenSession, authenticate
from distributedlog.control.channels import ControllerChannelPool
from distributedlog.control.contract import ControllerReply, Identity
from distributedlog.control.conversion.envelope import decode_reply, encode_reply, header
from distributedlog.control.server import listen
from distributedlog.control.unproven import UnprovenMembers
from distributedlog.controller.requests import HeartbeatRequest
from distributedlog.model.errors import ClusterAuthorizationError
from distributedlog.ports.executor import Outcome
from tests.simulation.clock import SeededRandomness
from tests.unit.control.stage import A_REQUEST, CLUSTER, HOST, Controller, Log, Node, ask, credentials, run
from tests.unit.control.test_sessions import code_of, exchange_call, request_of, submit, watch_call

MEMBERS = (1, 2, 3, 9)


class Members(UnprovenMembers):
    def __init__(self, *, is_optional: bool = True) -> None:
        self.accepted: list[int] = []
        super().__init__(MEMBERS.__contains__, self.accepted.append, is_optional=is_optional)


def play(story: Callable[[Node, Controller, grpc.aio.Channel], Awaitable[None]], members: Members) -> None:
    async def whole() -> None:
        controller = Controller()
        node = await Node(2, controller=controller, metadata=Log(), unproven=members).start()
        channel = grpc.aio.insecure_channel(f"{HOST}:{node.port}")
        await story(node, controller, channel)
        await channel.close()
        await node.stop()

    run(whole)


async def answer_one(controller: Controller) -> None:
    _, _, done = await controller.asked.get()
    done(Outcome(ControllerReply(None, 7)))


# --- who calls us --------------------------------------------------------------------------------


def test_a_member_of_an_earlier_version_is_heard_and_counted() -> None:
    members = Members()

    async def story(node: Node, controller: Controller, channel: grpc.aio.Channel) -> None:
        answering = asyncio.ensure_future(answer_one(controller))
        assert await submit(channel, request_of(9)) == encode_reply(ControllerReply(None, 7))
        await answering
        await exchange_call(channel, 1)
        assert await node.inbox.get() == (1, b"heartbeat")
        assert members.accepted == [9, 1]
        assert node.refused == []

    play(story, members)


def test_who_is_no_member_is_refused_and_so_is_a_broker_that_sends_messages_of_consensus() -> None:
    members = Members()

    async def story(node: Node, controller: Controller, channel: grpc.aio.Channel) -> None:
        refused = decode_reply(await submit(channel, request_of(77))).error
        assert isinstance(refused, ClusterAuthorizationError)
        watched = pb.WatchMetadataRequest(header=header(Identity(CLUSTER, 77), 2)).SerializeToString()
        assert await code_of(watch_call(channel, watched).read()) is grpc.StatusCode.UNAUTHENTICATED
        for sender in (77, 9):
            assert await code_of(exchange_call(channel, sender)) is grpc.StatusCode.FAILED_PRECONDITION
        other = HeartbeatRequest(broker_id=3, broker_epoch=1, metadata_offset=1)
        refused = decode_reply(await submit(channel, request_of(9, other))).error
        assert isinstance(refused, ClusterAuthorizationError), "nobody asks in the name of another"
        assert controller.asked.empty()
        assert node.inbox.empty()

    play(story, members)


def test_who_has_proved_itself_is_not_believed_without_a_proof_again() -> None:
    members = Members()

    async def story(node: Node, controller: Controller, channel: grpc.aio.Channel) -> None:
        await authenticate(channel, credentials(9), 2)
        refused = decode_reply(await submit(channel, request_of(9))).error
        assert isinstance(refused, ClusterAuthorizationError)
        assert "proves nothing" in str(refused)
        assert members.accepted == []

    play(story, members)


def test_unless_it_is_asked_for_nobody_is_heard_without_a_proof() -> None:
    async def story(node: Node, controller: Controller, channel: grpc.aio.Channel) -> None:
        assert await code_of(submit(channel, request_of(9))) is grpc.StatusCode.UNAUTHENTICATED
        assert await code_of(exchange_call(channel, 1)) is grpc.StatusCode.UNAUTHENTICATED

    play(story, Members(is_optional=False))


# --- whom we call --------------------------------------------------------------------------------


def with_earlier_node(story: Callable[[tuple[str, int]], Awaitable[None]]) -> None:
    """A server that answers the controller's requests and knows nothing of authentication."""

    async def whole() -> None:
        async def answer(data: bytes, context: object) -> bytes:
            return encode_reply(ControllerReply(None, 7))

        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Submit": grpc.unary_unary_rpc_method_handler(answer)
        }
        server = grpc.aio.server()
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("dlog.v1.Controller", methods)])
        port = await listen(server, HOST, 0)
        await story((HOST, port))
        await server.stop(0)

    run(whole)


def test_a_node_of_an_earlier_version_is_asked_if_that_is_allowed() -> None:
    async def story(address: tuple[str, int]) -> None:
        for is_optional in (True, False):
            members = Members(is_optional=is_optional)
            own = credentials(9, unproven=members)
            pool = ControllerChannelPool(own, {2: address}, randomness=SeededRandomness(1))
            outcome = await ask(pool, 2, A_REQUEST)
            if is_optional:
                assert outcome.value() == ControllerReply(None, 7)
            else:
                assert isinstance(outcome.error, ClusterAuthorizationError)
                assert "control.authentication" in str(outcome.error)
            assert members.accepted == ([2] if is_optional else [])
            await pool.close()

    with_earlier_node(story)


def test_a_node_that_once_proved_itself_is_not_asked_without() -> None:
    async def story(address: tuple[str, int]) -> None:
        members = Members()
        members.note_proof(2)
        own = credentials(9, unproven=members)
        pool = ControllerChannelPool(own, {2: address}, randomness=SeededRandomness(1))
        assert isinstance((await ask(pool, 2, A_REQUEST)).error, ClusterAuthorizationError)
        await pool.close()

    with_earlier_node(story)


def test_nothing_is_signed_for_who_proved_nothing() -> None:
    assert UnprovenSession().metadata("/any", b"body") == ()
