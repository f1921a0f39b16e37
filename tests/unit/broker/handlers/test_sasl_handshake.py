"""SaslHandshake and SaslAuthenticate: brokers prove who they are, and clients have no business with it."""

import os
from pathlib import Path

import pytest

from distributedlog.broker.peers.authentication import MECHANISM, Prover, SecretHolder
from distributedlog.model.cluster_secret import ClusterSecrets
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from distributedlog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.unit.broker.handlers.data_stage import DataBroker, data_broker
from tests.unit.broker.partition_stage import ME, OTHER
from tests.unit.broker.server_stage import SECRET_HOLDER

OTHERS_EPOCH = OTHER
"""The epoch that `DataBroker.register` gives."""


def shake_hands(broker: DataBroker, mechanism: str = MECHANISM, version: int = 1) -> SaslHandshakeResponse:
    return broker.ask(SaslHandshakeRequest(mechanism=mechanism), version, SaslHandshakeResponse)


def send(broker: DataBroker, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
    return broker.ask(SaslAuthenticateRequest(auth_bytes=token), version, SaslAuthenticateResponse)


def prove(
    broker: DataBroker, epoch: int = OTHERS_EPOCH, secret: bytes | None = None
) -> SaslAuthenticateResponse:
    """The whole exchange, as the other broker makes it; the last answer."""
    secrets = SECRET_HOLDER.secrets() if secret is None else ClusterSecrets((secret,))
    prover = Prover(SecretHolder("cluster", OTHER, lambda: secrets, os.urandom), epoch, ME)
    assert shake_hands(broker).error_code == ErrorCode.NONE
    first = send(broker, prover.begin())
    if first.error_code:
        return first
    return send(broker, prover.answer(bytes(first.auth_bytes)))


def test_a_broker_with_the_secret_is_known(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.register(OTHER, 9_002)
        assert shake_hands(broker, "PLAIN").mechanisms == []
        assert prove(broker).error_code == ErrorCode.NONE
        assert broker.session.broker == (OTHER, OTHERS_EPOCH)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "", "x" * 1000])
def test_a_client_is_told_that_there_is_no_authentication(tmp_path: Path, mechanism: str) -> None:
    with data_broker(tmp_path) as broker:
        for version in (0, 1):
            answer = shake_hands(broker, mechanism, version)
            assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        assert shake_hands(broker, MECHANISM, 0).error_code == ErrorCode.ILLEGAL_SASL_STATE
        for version in (0, 1, 2):
            assert send(broker, b"token", version).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert broker.session.broker is None


def test_an_unknown_broker_or_an_old_epoch_is_refused_and_counted(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        assert prove(broker).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert shake_hands(broker).error_code == ErrorCode.ILLEGAL_SASL_STATE, "one exchange on a connection"
        assert broker.session.broker is None
        assert broker.metrics.peers_refused == 1


def test_garbage_is_no_proof(tmp_path: Path) -> None:
    with data_broker(tmp_path) as broker:
        broker.register(OTHER, 9_002)
        assert shake_hands(broker).error_code == ErrorCode.NONE
        assert send(broker, b"").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert broker.session.broker is None
