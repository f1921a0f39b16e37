"""Who is answered on the control port: who holds the secret, on its own connection, for itself."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from distributedlog.control import sessions as sessions_module
from distributedlog.control._generated import authentication_pb2, raft_pb2
from distributedlog.control._generated import controller_pb2 as pb
from distributedlog.control.authentication import CallMetadata, authenticate
from distributedlog.control.contract import ControllerReply, Identity
from distributedlog.control.conversion.envelope import decode_reply, encode_request, header
from distributedlog.control.credentials import (
    AUTHENTICATE,
    EXCHANGE,
    SESSION_METADATA,
    SIGNATURE_METADATA,
    SUBMIT,
    WATCH_METADATA,
)
from distributedlog.control.server import listen
from distributedlog.control.sessions import NUMBERS_BACK_MAX, Session, Sessions, host_of
from distributedlog.controller.requests import (
    AllocateProducerIdsRequest,
    AlterPartitionsRequest,
    HeartbeatRequest,
    RegisterBrokerRequest,
    Request,
)
from distributedlog.model.cluster_secret import ClusterSecrets, sign
from distributedlog.model.errors import ClusterAuthorizationError
from distributedlog.model.ids import Uuid
from distributedlog.ports.executor import Outcome
from tests.unit.control.stage import (
    A_REQUEST,
    CLUSTER,
    HOST,
    SECRETS,
    Controller,
    Log,
    Node,
    ask,
    credentials,
    pool_to,
    run,
)

FOREIGN = ClusterSecrets((b"f" * 32,))
NEW = b"n" * 32
REGISTRATION = RegisterBrokerRequest(CLUSTER, 9, Uuid(b"1" * 16), (), ())


class Scene:
    """A node with everything behind it, and connections to it."""

    def __init__(self) -> None:
        self.controller, self.log = Controller(), Log()
        self.node = Node(2, controller=self.controller, metadata=self.log)
        self._channels: list[grpc.aio.Channel] = []

    def channel(self) -> grpc.aio.Channel:
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.aio.insecure_channel(f"{HOST}:{self.node.port}", options=options)
        self._channels.append(channel)
        return channel

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.node.refused]

    def assert_nothing_happened(self) -> None:
        assert self.controller.asked.empty()
        assert self.node.inbox.empty()
        assert self.log.watched_from == []


def play(story: Callable[[Scene], Awaitable[None]]) -> None:
    async def whole() -> None:
        scene = Scene()
        await scene.node.start()
        await story(scene)
        for channel in scene._channels:
            await channel.close()
        await scene.node.stop()

    run(whole)


async def submit(channel: grpc.aio.Channel, data: bytes, metadata: CallMetadata = ()) -> Any:
    call: Any = channel.unary_unary(SUBMIT)
    return await call(data, metadata=metadata, timeout=10)


def watch_call(channel: grpc.aio.Channel, data: bytes, metadata: CallMetadata = ()) -> Any:
    watch: Any = channel.unary_stream(WATCH_METADATA)
    return watch(data, metadata=metadata, timeout=10)


def exchange_call(channel: grpc.aio.Channel, node_id: int, metadata: CallMetadata = ()) -> Any:
    """A stream of messages that says to be of that node."""
    frames = [
        raft_pb2.RaftFrame(hello=header(Identity(CLUSTER, node_id), 2)).SerializeToString(),
        raft_pb2.RaftFrame(message=b"heartbeat").SerializeToString(),
    ]
    exchange: Any = channel.stream_unary(EXCHANGE)
    return exchange(iter(frames), metadata=metadata, timeout=10)


async def code_of(call: Awaitable[Any]) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code()


def request_of(node_id: int, request: Request = A_REQUEST) -> bytes:
    return encode_request(request, Identity(CLUSTER, node_id), 2)


# --- without a session -------------------------------------------------------------------------


def test_nothing_is_answered_without_a_session() -> None:
    async def story(scene: Scene) -> None:
        channel = scene.channel()
        assert await code_of(submit(channel, request_of(9))) is grpc.StatusCode.UNAUTHENTICATED
        watched = pb.WatchMetadataRequest(header=header(Identity(CLUSTER, 9), 2)).SerializeToString()
        assert await code_of(watch_call(channel, watched).read()) is grpc.StatusCode.UNAUTHENTICATED
        assert await code_of(exchange_call(channel, 1)) is grpc.StatusCode.UNAUTHENTICATED
        scene.assert_nothing_happened()
        assert scene.reasons == ["not authenticated"] * 3
        assert {host for host, _, _ in scene.node.refused} == {HOST}

    play(story)


def test_a_made_up_session_is_none() -> None:
    async def story(scene: Scene) -> None:
        made_up = ((SESSION_METADATA, os.urandom(16)), (SIGNATURE_METADATA, bytes(40)))
        assert (
            await code_of(submit(scene.channel(), request_of(9), made_up)) is grpc.StatusCode.UNAUTHENTICATED
        )
        scene.assert_nothing_happened()
        assert scene.reasons == ["unknown session"]

    play(story)


def test_a_large_call_without_a_session_is_not_read() -> None:
    """It is refused by its metadata; the status comes before the bytes have all left."""

    async def story(scene: Scene) -> None:
        for _ in range(20):
            code = await code_of(submit(scene.channel(), bytes(8 * 1024 * 1024)))
            assert code is grpc.StatusCode.UNAUTHENTICATED

    play(story)


# --- proofs ------------------------------------------------------------------------------------


def test_who_holds_another_secret_asks_nothing_and_is_told_why() -> None:
    async def story(scene: Scene) -> None:
        pool = pool_to(scene.node, secrets=FOREIGN)
        refused = (await ask(pool, 2)).error
        assert isinstance(refused, ClusterAuthorizationError)
        assert "what answers as node 2 does not hold this cluster's secret" in str(refused)
        await pool.close()
        scene.assert_nothing_happened()

    play(story)


def test_a_wrong_proof_is_refused() -> None:
    async def story(scene: Scene) -> None:
        call: Any = scene.channel().stream_stream(AUTHENTICATE)(timeout=10)
        message = authentication_pb2.Hello(
            header=header(Identity(CLUSTER, 1), 2), roles="controller", nonce=bytes(32)
        )
        await call.write(authentication_pb2.AuthenticateRequest(hello=message).SerializeToString())
        assert await call.read() is not grpc.aio.EOF
        await call.write(authentication_pb2.AuthenticateRequest(proof=bytes(32)).SerializeToString())
        assert await code_of(call.read()) is grpc.StatusCode.UNAUTHENTICATED
        ((_, reason, said),) = scene.node.refused
        assert reason == "wrong proof"
        assert "calls itself node 1 and does not hold" in said

    play(story)


@pytest.mark.parametrize(
    "frame",
    [
        b"\xff\xff",
        b"",
        authentication_pb2.AuthenticateRequest(proof=bytes(32)).SerializeToString(),
        authentication_pb2.AuthenticateRequest(
            hello=authentication_pb2.Hello(
                header=header(Identity(CLUSTER, 1), 2), roles="emperor", nonce=bytes(32)
            )
        ).SerializeToString(),
        authentication_pb2.AuthenticateRequest(
            hello=authentication_pb2.Hello(header=header(Identity(CLUSTER, 1), 2), roles="broker", nonce=b"1")
        ).SerializeToString(),
        bytes(100_000),
    ],
    ids=["garbage", "empty", "no hello", "unknown role", "short nonce", "oversize"],
)
def test_a_hello_that_makes_no_sense_is_refused(frame: bytes) -> None:
    async def story(scene: Scene) -> None:
        call: Any = scene.channel().stream_stream(AUTHENTICATE)(timeout=10)
        await call.write(frame)
        assert await code_of(call.read()) is grpc.StatusCode.FAILED_PRECONDITION
        assert scene.reasons == ["wrong header"]

    play(story)


def test_who_does_not_go_on_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "HANDSHAKE_TIMEOUT_S", 0.1)

    async def story(scene: Scene) -> None:
        call: Any = scene.channel().stream_stream(AUTHENTICATE)(timeout=10)
        assert await code_of(call.read()) is grpc.StatusCode.UNAUTHENTICATED
        assert scene.reasons == ["too slow"]

    play(story)


def test_many_who_do_not_go_on_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "HANDSHAKES_MAX", 4)

    async def story(scene: Scene) -> None:
        channel = scene.channel()
        calls: list[Any] = [channel.stream_stream(AUTHENTICATE)(timeout=10) for _ in range(12)]
        assert await code_of(calls[0].read()) is grpc.StatusCode.UNAUTHENTICATED
        await authenticate(scene.channel(), credentials(9), 2)
        for call in calls:
            call.cancel()

    play(story)


def test_a_server_that_does_not_hold_the_secret_is_asked_nothing() -> None:
    """Somebody listens at a voter's address."""

    async def story() -> None:
        asked: list[bytes] = []

        async def answer(data: bytes, context: object) -> bytes:
            asked.append(data)
            return b""

        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Submit": grpc.unary_unary_rpc_method_handler(answer)
        }
        rogue = grpc.aio.server()
        rogue.add_generic_rpc_handlers(
            [
                grpc.method_handlers_generic_handler("dlog.v1.Controller", methods),
                Sessions(credentials(2, secrets=FOREIGN), lambda *what: None).handler(),
            ]
        )
        port = await listen(rogue, HOST, 0)
        node = Node(2)
        node.port = port
        pool = pool_to(node)
        assert isinstance((await ask(pool, 2)).error, ClusterAuthorizationError)
        assert asked == []
        await pool.close()
        await node.stop()
        await rogue.stop(None)

    run(story)


# --- rotation ----------------------------------------------------------------------------------


def test_a_secret_is_rotated_without_anybody_being_refused() -> None:
    async def story() -> None:
        old = SECRETS.proving
        held = [(old,), (old, NEW), (NEW, old), (NEW,)]
        for at in range(3):
            for one, two in ((held[at], held[at + 1]), (held[at + 1], held[at])):
                controller = Controller()
                node = await Node(2, controller=controller, secrets=ClusterSecrets(one)).start()
                pool = pool_to(node, secrets=ClusterSecrets(two))
                answer = ask(pool, 2)
                (await controller.asked.get())[2](Outcome(ControllerReply(None, 1)))
                assert (await answer).error is None
                assert node.refused == []
                await pool.close()
                await node.stop()

    run(story)


# --- what a session is good for ----------------------------------------------------------------


def test_a_session_is_good_on_its_own_connection_only() -> None:
    async def story(scene: Scene) -> None:
        own, other = scene.channel(), scene.channel()
        session = await authenticate(own, credentials(9), 2)
        data = request_of(9)
        overheard = session.metadata(SUBMIT, data)
        assert await code_of(submit(other, data, overheard)) is grpc.StatusCode.UNAUTHENTICATED
        assert scene.reasons == ["another connection"]
        scene.assert_nothing_happened()

    play(story)


def test_a_call_is_good_once_and_as_it_was_sealed() -> None:
    async def story(scene: Scene) -> None:
        channel = scene.channel()
        session = await authenticate(channel, credentials(9), 2)
        data = request_of(9)
        metadata = session.metadata(SUBMIT, data)
        call = asyncio.ensure_future(submit(channel, data, metadata))
        (await scene.controller.asked.get())[2](Outcome(ControllerReply(None, 1)))
        assert decode_reply(await call).error is None
        assert await code_of(submit(channel, data, metadata)) is grpc.StatusCode.UNAUTHENTICATED
        other = request_of(9, HeartbeatRequest(9, 3, 3))
        assert await code_of(submit(channel, other, session.metadata(SUBMIT, data))) is (
            grpc.StatusCode.UNAUTHENTICATED
        )
        for_another_method = session.metadata(WATCH_METADATA, data)
        assert await code_of(submit(channel, data, for_another_method)) is grpc.StatusCode.UNAUTHENTICATED
        assert scene.reasons == ["wrong signature"] * 3
        scene.assert_nothing_happened()

    play(story)


def test_calls_may_overtake_each_other_but_none_comes_twice() -> None:
    key = b"k" * 32
    session = Session(1, frozenset({"broker"}), key, "peer")

    def opens(number: int) -> bool:
        return session.accepts("/m", b"", number.to_bytes(8, "big") + sign(key, "/m", number, b""))

    assert [opens(number) for number in (3, 1, 2)] == [True] * 3
    assert not any(opens(number) for number in (1, 2, 3))
    for number in range(4, 3 * NUMBERS_BACK_MAX):
        assert opens(number)
        assert not opens(number)
    assert not opens(5), "too old to say"
    assert len(session._numbers) <= 2 * NUMBERS_BACK_MAX
    assert not session.accepts("/m", b"", b"")


@pytest.mark.parametrize(
    "request_of_another",
    [
        REGISTRATION,
        HeartbeatRequest(9, 1, 1),
        AllocateProducerIdsRequest(9, 1),
        AlterPartitionsRequest(9, 1, ()),
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_node_asks_for_no_other_broker(request_of_another: Request) -> None:
    async def story(scene: Scene) -> None:
        pool = pool_to(scene.node, node_id=1)
        assert isinstance((await ask(pool, 2, request_of_another)).error, ClusterAuthorizationError)
        assert scene.reasons == ["not its own"]
        scene.assert_nothing_happened()
        await pool.close()

    play(story)


def test_a_controller_alone_registers_no_broker() -> None:
    async def story(scene: Scene) -> None:
        channel = scene.channel()
        session = await authenticate(channel, credentials(9, roles="controller"), 2)
        data = request_of(9, REGISTRATION)
        reply = await submit(channel, data, session.metadata(SUBMIT, data))
        assert isinstance(decode_reply(reply).error, ClusterAuthorizationError)
        scene.assert_nothing_happened()

    play(story)


def test_a_node_speaks_in_no_others_name() -> None:
    async def story(scene: Scene) -> None:
        channel = scene.channel()
        session = await authenticate(channel, credentials(9), 2)
        data = request_of(1, HeartbeatRequest(1, 1, 1))
        reply = await submit(channel, data, session.metadata(SUBMIT, data))
        assert isinstance(decode_reply(reply).error, ClusterAuthorizationError)
        watched = pb.WatchMetadataRequest(header=header(Identity(CLUSTER, 1), 2)).SerializeToString()
        watch = watch_call(channel, watched, session.metadata(WATCH_METADATA, watched))
        assert await code_of(watch.read()) is grpc.StatusCode.UNAUTHENTICATED
        assert scene.reasons == ["not its own"] * 2
        scene.assert_nothing_happened()

    play(story)


@pytest.mark.parametrize(
    ("node_id", "roles", "said"),
    [(9, "controller", "is no voter that node 2 knows of"), (1, "broker", "is no controller")],
)
def test_messages_of_consensus_are_voters_only(node_id: int, roles: str, said: str) -> None:
    async def story(scene: Scene) -> None:
        channel = scene.channel()
        session = await authenticate(channel, credentials(node_id, roles=roles), 2)
        exchange = exchange_call(channel, node_id, session.metadata(EXCHANGE))
        assert await code_of(exchange) is grpc.StatusCode.UNAUTHENTICATED
        ((_, reason, told),) = scene.node.refused
        assert reason == "not its own"
        assert said in told
        scene.assert_nothing_happened()

    play(story)


def test_the_sender_of_a_message_is_who_proved_itself() -> None:
    async def story(scene: Scene) -> None:
        channel = scene.channel()
        session = await authenticate(channel, credentials(1), 2)
        exchange = exchange_call(channel, 3, session.metadata(EXCHANGE))
        assert await code_of(exchange) is grpc.StatusCode.FAILED_PRECONDITION
        assert scene.reasons == ["not its own"]
        scene.assert_nothing_happened()

    play(story)


def test_the_oldest_session_ends_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "SESSIONS_MAX", 2)

    async def story(scene: Scene) -> None:
        first = pool_to(scene.node)
        for offset in range(3):
            answer = ask(first, 2)
            (await scene.controller.asked.get())[2](Outcome(ControllerReply(None, offset)))
            assert (await answer).value().offset == offset
            for _ in range(2):
                await authenticate(scene.channel(), credentials(3), 2)
        assert scene.reasons == ["unknown session"] * 2, "it authenticated anew, and was answered"
        await first.close()

    play(story)


@pytest.mark.parametrize(
    ("peer", "host"),
    [("ipv4:10.0.0.7:4711", "10.0.0.7"), ("ipv6:%5B::1%5D:4711", "[::1]"), ("unix:", "unix:"), ("", "")],
)
def test_the_address_of_a_peer_is_told_without_its_port(peer: str, host: str) -> None:
    assert host_of(peer) == host
