"""SaslHandshake: the mechanism by which a connection is authenticated.

There is one, by which brokers know each other (`peers/authentication`), and it is named to nobody: for
clients this listener has no authentication, and they are told ILLEGAL_SASL_STATE, as Kafka does.
"""

from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.broker.peers.authentication import MECHANISM, Verifier
from distributedlog.broker.services import Services
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@handles(SaslHandshakeRequest, versions=(0, 1))
def sasl_handshake(
    services: Services, request: SaslHandshakeRequest, context: RequestContext
) -> SaslHandshakeResponse:
    session = context.session
    is_possible = session is not None and session.verifier is None and context.api_version >= 1
    if session is None or not is_possible or request.mechanism != MECHANISM:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])

    def current_epoch(broker_id: int) -> int | None:
        broker = services.metadata.image.brokers.get(broker_id)
        return None if broker is None else broker.epoch

    session.verifier = Verifier(services.secret_holder, current_epoch)
    return SaslHandshakeResponse(mechanisms=[MECHANISM])
