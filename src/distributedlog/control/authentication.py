"""Proves to another node who we are, before it is asked for anything: the caller's side of authentication.

The other node proves itself first.  One that does not hold the secret learns nothing of ours but a nonce, and
is asked for nothing: what it would answer, as metadata or as a leader's word, is not believed.  Nor is why it
refuses us: it is told in the log, and we go on trying.
"""

import os
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc.aio import AioRpcError, Channel

from distributedlog.control.contract import Identity
from distributedlog.control.credentials import (
    AUTHENTICATE,
    NUMBER_BYTES,
    SESSION_METADATA,
    SIGNATURE_METADATA,
    Credentials,
    client_claim,
    server_claim,
)
from distributedlog.model.cluster_secret import NONCE_BYTES, prove, proving_secret, session_key, sign
from distributedlog.model.errors import (
    ClusterAuthorizationError,
    DlogError,
    MalformedMessageError,
    UnreachableError,
)

if TYPE_CHECKING:
    from distributedlog.control._generated import authentication_pb2 as pb

AUTHENTICATE_TIMEOUT_S: Final = 5.0
REPLY_BYTES_MAX: Final = 4096
REFUSED: Final = (
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
)

CallMetadata = tuple[tuple[str, bytes], ...]


class CallerSession:
    """What our calls on one connection are signed with."""

    def __init__(self, session_id: bytes, key: bytes) -> None:
        self._id = session_id
        self._key = key
        self._number = 0

    def metadata(self, method: str, body: bytes = b"") -> CallMetadata:
        """Returns the metadata for one call, once."""
        self._number += 1
        given = self._number.to_bytes(NUMBER_BYTES, "big") + sign(self._key, method, self._number, body)
        return (SESSION_METADATA, self._id), (SIGNATURE_METADATA, given)


class UnprovenSession(CallerSession):
    """A session with a node of an earlier version: nothing was proved, and nothing is signed."""

    def __init__(self) -> None:
        super().__init__(b"", b"")

    def metadata(self, method: str, body: bytes = b"") -> CallMetadata:
        return ()


class NoAuthenticationError(ClusterAuthorizationError):
    """The other node does not know how to authenticate: it is of an earlier version, or no node."""


async def authenticate(channel: Channel, credentials: Credentials, node_id: int) -> CallerSession:
    """A session with the node at the other end; raises the DlogError that says why there is none."""
    call: Any = channel.stream_stream(AUTHENTICATE)(timeout=AUTHENTICATE_TIMEOUT_S)
    try:
        session = await _authenticate(call, credentials, node_id)
        credentials.unproven.note_proof(node_id)
        return session
    except AioRpcError as failed:
        error = _error_of(failed, node_id)
        if isinstance(error, NoAuthenticationError) and credentials.unproven.accept(node_id):
            return UnprovenSession()
        raise error from failed
    finally:
        call.cancel()


async def _authenticate(call: Any, credentials: Credentials, node_id: int) -> CallerSession:
    from distributedlog.control._generated import authentication_pb2 as pb
    from distributedlog.control.conversion.envelope import header

    own, nonce = credentials.identity, os.urandom(NONCE_BYTES)
    hello = pb.Hello(header=header(own, node_id), roles=credentials.roles, nonce=nonce)
    await call.write(pb.AuthenticateRequest(hello=hello).SerializeToString())
    challenge = (await _read(call, node_id)).challenge
    nonces, secrets = (nonce, challenge.nonce), credentials.secrets()
    other = server_claim(Identity(own.cluster_id, node_id), own.node_id)
    if proving_secret(secrets, other, nonces, challenge.proof) is None:
        raise ClusterAuthorizationError(
            f"what answers as node {node_id} does not hold this cluster's secret: nothing is asked of it"
        )
    claim = client_claim(own, credentials.roles, node_id)
    proof = prove(secrets.proving, claim, nonces)
    await call.write(pb.AuthenticateRequest(proof=proof).SerializeToString())
    session_id = (await _read(call, node_id)).session_id
    return CallerSession(session_id, session_key(secrets.proving, claim, nonces))


async def _read(call: Any, node_id: int) -> "pb.AuthenticateReply":
    from distributedlog.control._generated import authentication_pb2 as pb
    from distributedlog.control.conversion.envelope import parse

    data = await call.read()
    if data is grpc.aio.EOF:
        raise UnreachableError(f"node {node_id} ended before it had proved anything")
    try:
        return parse(pb.AuthenticateReply, data, REPLY_BYTES_MAX)
    except MalformedMessageError as garbage:
        raise ClusterAuthorizationError(f"what answers as node {node_id} is no node: {garbage}") from garbage


def _error_of(failed: AioRpcError, node_id: int) -> DlogError:
    if failed.code() is grpc.StatusCode.UNIMPLEMENTED:
        return NoAuthenticationError(
            f"node {node_id} does not authenticate other nodes: it is of an older version, or no node (for "
            "the time of an upgrade see control.authentication)"
        )
    if failed.code() in REFUSED:
        details = "".join(each if each.isprintable() else "?" for each in (failed.details() or "")[:300])
        return ClusterAuthorizationError(f"node {node_id} refuses us: {details}")
    return UnreachableError(f"node {node_id} does not authenticate us: {failed.code().name}")
