import pytest

from distributedlog.model.error_codes import ErrorCode
from distributedlog.model.errors import RequestTimedOutError
from distributedlog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.unit.broker.handlers.admin_stage import Broker, versions_of

EVERY = versions_of(InitProducerIdRequest)


def ask(broker: Broker, version: int = EVERY[-1], **fields: object) -> tuple[ErrorCode, int, int]:
    given = {"transactional_id": None, "transaction_timeout_ms": 60_000, **fields}
    request = InitProducerIdRequest(**given)  # type: ignore[arg-type]
    response = broker.ask(request, version, InitProducerIdResponse)
    return ErrorCode(response.error_code), response.producer_id, response.producer_epoch


@pytest.mark.parametrize("version", EVERY)
def test_every_producer_gets_an_id_of_its_own(version: int) -> None:
    broker = Broker()
    given = [ask(broker, version) for _ in range(3)]
    assert {(error, epoch) for error, _, epoch in given} == {(ErrorCode.NONE, 0)}
    assert len({producer_id for _, producer_id, _ in given}) == 3


def test_a_producer_that_names_its_old_id_gets_a_new_one() -> None:
    broker = Broker()
    _, old, _ = ask(broker)
    error, new, epoch = ask(broker, producer_id=old, producer_epoch=3)
    assert (error, epoch) == (ErrorCode.NONE, 0)
    assert new != old


@pytest.mark.parametrize("half", [{"producer_id": 4}, {"producer_epoch": 4}])
def test_an_id_comes_with_its_epoch(half: dict[str, int]) -> None:
    assert ask(Broker(), **half) == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize("version", EVERY)
def test_without_the_controller_the_client_is_to_try_again(version: int) -> None:
    broker = Broker()
    broker.controller.failure = RequestTimedOutError("late")
    assert ask(broker, version) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    broker.controller.failure = None
    assert ask(broker, version)[0] is ErrorCode.NONE


@pytest.mark.parametrize("version", EVERY)
def test_an_empty_transactional_id_is_refused(version: int) -> None:
    broker = Broker()
    assert ask(broker, version, transactional_id="") == (ErrorCode.INVALID_REQUEST, -1, -1)
    assert broker.controller.asked == []
