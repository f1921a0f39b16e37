"""A connection to another broker, over which this one has proved which broker it is."""

from typing import Final

from distributedlog.broker.peers.authentication import MECHANISM, Prover, SecretHolder
from distributedlog.client.connection import Connection, connect
from distributedlog.controller.image import Broker, Endpoint
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import BrokerUnreachableError, SaslAuthenticationError
from distributedlog.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from distributedlog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

CLIENT_ID: Final = "broker-{}-fetcher"
HANDSHAKE_VERSION: Final = 1


def find_endpoint(broker: Broker, listener: str) -> Endpoint:
    """The address of a broker on the listener that brokers use among themselves."""
    named = next((each for each in broker.endpoints if each.name == listener), None)
    if named is None and not broker.endpoints:
        raise BrokerUnreachableError(f"broker {broker.broker_id} has no address")
    return named or broker.endpoints[0]


async def connect_to_peer(
    broker: Broker,
    listener: str,
    holder: SecretHolder,
    epoch: int,
    *,
    timeout_ms: int,
    frame_bytes_max: int,
) -> Connection:
    """Connects as the broker that `holder` is, in this epoch.

    Raises a DlogError: nobody answers there, it is another one, or it does not believe us.
    """
    endpoint = find_endpoint(broker, listener)
    connection = await connect(
        endpoint.host,
        endpoint.port,
        client_id=CLIENT_ID.format(holder.broker_id),
        timeout_ms=timeout_ms,
        frame_bytes_max=frame_bytes_max,
    )
    try:
        await _authenticate(connection, Prover(holder, epoch, broker.broker_id), timeout_ms)
    except BaseException:
        connection.close()
        raise
    return connection


async def _authenticate(connection: Connection, prover: Prover, timeout_ms: int) -> None:
    handshake = await connection.call(
        SaslHandshakeRequest(mechanism=MECHANISM),
        SaslHandshakeResponse,
        timeout_ms=timeout_ms,
        version=connection.version_for(SaslHandshakeRequest, at_most=HANDSHAKE_VERSION),
    )
    if handshake.error_code != ErrorCode.NONE:
        raise SaslAuthenticationError(f"{connection.label} has no authentication between brokers")
    challenge = await _send_token(connection, prover.begin(), timeout_ms)
    await _send_token(connection, prover.answer(challenge), timeout_ms)


async def _send_token(connection: Connection, token: bytes, timeout_ms: int) -> bytes:
    answer = await connection.call(
        SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, timeout_ms=timeout_ms
    )
    if answer.error_code != ErrorCode.NONE:
        raise SaslAuthenticationError(answer.error_message or f"{connection.label} does not believe us")
    return bytes(answer.auth_bytes)
