"""SaslHandshake and SaslAuthenticate, on a listener that asks for neither."""

from distributedlog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from distributedlog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.compat.differential.asking import Conversation
from tests.compat.differential.building import metadata
from tests.compat.differential.registry import probe


@probe(SaslHandshakeRequest)
def handshakes(of: Conversation, version: int) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "", "no such"):
        of.ask(f"mechanism '{mechanism}'", SaslHandshakeRequest(mechanism=mechanism), version)


@probe(SaslAuthenticateRequest)
def authentications(of: Conversation, version: int) -> None:
    of.ask("without a handshake", SaslAuthenticateRequest(auth_bytes=b"\0ann\0secret"), version)
    of.ask("no bytes", SaslAuthenticateRequest(auth_bytes=b""), version)
    of.ask("another request then", metadata(of.name("none")), 12)
