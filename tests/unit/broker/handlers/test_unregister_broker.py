"""UnregisterBroker."""

from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tests.unit.broker.handlers.admin_stage import Broker


def ask(broker: Broker, broker_id: int) -> UnregisterBrokerResponse:
    return broker.ask(UnregisterBrokerRequest(broker_id=broker_id), 0, UnregisterBrokerResponse)


def test_a_registered_broker_is_forgotten_and_another_is_refused_in_kafkas_code() -> None:
    broker = Broker(1, 2)
    assert ask(broker, 2).error_code == ErrorCode.NONE
    for gone in (2, 77):
        response = ask(broker, gone)
        assert response.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        assert response.error_message == f"broker {gone} is not registered"
