"""An attacker at the control port of a running cluster: what it sends, and what it is answered.

`send_messages` and `submit` know the protocol and the cluster's id.  Without a secret they call as nodes did
before there were any; with one they authenticate first, as a node whose secret was stolen.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import grpc

from distributedlog.control._generated import raft_pb2
from distributedlog.control.authentication import authenticate
from distributedlog.control.contract import Identity
from distributedlog.control.conversion.envelope import decode_reply, encode_request, header
from distributedlog.control.credentials import EXCHANGE, SUBMIT, Credentials
from distributedlog.controller.features import FEATURES
from distributedlog.controller.image import Endpoint, SupportedLevels
from distributedlog.controller.requests import RegisterBrokerRequest, Request
from distributedlog.model.cluster_secret import ClusterSecrets
from distributedlog.model.ids import Uuid
from distributedlog.raft import Entry, EntryKind, Membership, Message, codec
from distributedlog.raft.messages import AppendRequest, Heartbeat, InstallRequest

TIMEOUT_S = 10
GARBAGE = b"garbage that no controller can read"


class Target(NamedTuple):
    """One node's control port."""

    address: str
    cluster_id: str
    node_id: int


def hostile_messages(sender: int, to: int) -> dict[str, Message]:
    """Each would end the cluster, or replace its metadata, if it were taken."""
    garbage = Entry(1, 1_000_000, EntryKind.COMMAND, GARBAGE)
    alone = Membership.of_voters(sender)
    return {
        "term 2^63-1": Heartbeat(sender, to, 2**63 - 1, 0, 1),
        "term 2^31": Heartbeat(sender, to, 2**31, 0, 1),
        "garbage entry": AppendRequest(sender, to, 1_000_000, 0, 0, 1, (garbage,)),
        "forged snapshot": InstallRequest(
            sender, to, 1_000_000, 2**40, 1_000_000, alone, len(GARBAGE), 0, GARBAGE
        ),
    }


def registration(target: Target, broker_id: int) -> RegisterBrokerRequest:
    return RegisterBrokerRequest(
        target.cluster_id,
        broker_id,
        Uuid(b"rogue broker....".ljust(16)[:16]),
        (Endpoint("PLAINTEXT", "127.0.0.1", 9),),
        tuple(SupportedLevels(name, *levels) for name, levels in FEATURES.items()),
    )


def send_messages(
    target: Target, sender: int, messages: Sequence[Message], secrets: ClusterSecrets | None = None
) -> grpc.StatusCode:
    """Sends messages as that node, on one stream; returns how that ended."""

    async def send(channel: grpc.aio.Channel, metadata: Any) -> grpc.StatusCode:
        hello = raft_pb2.RaftFrame(hello=header(Identity(target.cluster_id, sender), target.node_id))
        frames = [hello, *(raft_pb2.RaftFrame(message=codec.encode(message)) for message in messages)]
        exchange: Any = channel.stream_unary(EXCHANGE)
        call = exchange((frame.SerializeToString() for frame in frames), timeout=TIMEOUT_S, metadata=metadata)
        code: grpc.StatusCode = await call.code()
        return code

    code: grpc.StatusCode = asyncio.run(_call(target, sender, EXCHANGE, b"", secrets, send))
    return code


def submit(
    target: Target, sender: int, request: Request, secrets: ClusterSecrets | None = None
) -> grpc.StatusCode | BaseException | None:
    """The status that refused it, the error it was answered with, or None: it was done."""
    data = encode_request(request, Identity(target.cluster_id, sender), target.node_id)

    async def send(channel: grpc.aio.Channel, metadata: Any) -> grpc.StatusCode | BaseException | None:
        call: Any = channel.unary_unary(SUBMIT)
        try:
            return decode_reply(await call(data, timeout=TIMEOUT_S, metadata=metadata)).error
        except grpc.aio.AioRpcError as refused:
            return refused.code()

    refusal: grpc.StatusCode | BaseException | None = asyncio.run(
        _call(target, sender, SUBMIT, data, secrets, send)
    )
    return refusal


async def _call(
    target: Target, sender: int, method: str, data: bytes, secrets: ClusterSecrets | None, send: Any
) -> Any:
    async with grpc.aio.insecure_channel(target.address) as channel:
        if secrets is None:
            return await send(channel, ())
        stolen = Credentials(Identity(target.cluster_id, sender), "broker,controller", lambda: secrets)
        session = await authenticate(channel, stolen, target.node_id)
        return await send(channel, session.metadata(method, data))
