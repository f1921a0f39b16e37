"""SaslAuthenticate: one token of the exchange that SaslHandshake began (`peers/authentication`).

A client, for which there is none, is told ILLEGAL_SASL_STATE.  A broker that proves nothing is told so, and
it stands in the log: either it has another secret, or somebody claims to be a broker.
"""

import logging

from distributedlog.broker.net.context import RequestContext
from distributedlog.broker.net.dispatch import handles
from distributedlog.broker.services import Services
from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import SaslAuthenticationError
from distributedlog.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)

logger = logging.getLogger(__name__)


@handles(SaslAuthenticateRequest, versions=(0, 2))
def sasl_authenticate(
    services: Services, request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    session = context.session
    if session is None or session.verifier is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate needs a SaslHandshake before it",
            auth_bytes=b"",
        )
    try:
        answer = session.verifier.authenticate(bytes(request.auth_bytes))
    except SaslAuthenticationError as error:
        services.metrics.peer_refused()
        logger.warning("a connection from %s is not one of a broker: %s", context.client_host, error)
        return SaslAuthenticateResponse(error_code=error.code, error_message=str(error), auth_bytes=b"")
    session.broker = session.verifier.identity
    return SaslAuthenticateResponse(auth_bytes=answer)
