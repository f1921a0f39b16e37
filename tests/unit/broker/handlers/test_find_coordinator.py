import pytest

from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.unit.broker.handlers.admin_stage import Broker, versions_of

EVERY = versions_of(FindCoordinatorRequest)


def ask(key_type: int, version: int, *keys: str) -> FindCoordinatorResponse:
    request = FindCoordinatorRequest(key_type=key_type)
    if version >= 4:
        request.coordinator_keys = list(keys)
    else:
        (request.key,) = keys
    return Broker().ask(request, version, FindCoordinatorResponse)


@pytest.mark.parametrize("version", [each for each in EVERY if each < 4])
def test_a_single_key_has_no_coordinator_yet(version: int) -> None:
    response = ask(0, version, "group")
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (response.node_id, response.host, response.port) == (-1, "", -1)
    assert bool(response.error_message) is (version >= 1)
    assert response.coordinators == []


@pytest.mark.parametrize("version", [each for each in EVERY if each >= 4])
@pytest.mark.parametrize("key_type", [0, 1])
def test_each_of_several_keys_is_answered(version: int, key_type: int) -> None:
    response = ask(key_type, version, "a", "b")
    assert [(each.key, each.node_id, each.host, each.port) for each in response.coordinators] == [
        ("a", -1, "", -1),
        ("b", -1, "", -1),
    ]
    codes = {each.error_code for each in response.coordinators}
    assert codes == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


@pytest.mark.parametrize("version", EVERY[1:])
@pytest.mark.parametrize("key_type", [2, 3, -1])
def test_kinds_that_are_not_coordinated_here_are_refused(version: int, key_type: int) -> None:
    response = ask(key_type, version, "k")
    codes = [each.error_code for each in response.coordinators] or [response.error_code]
    assert codes == [ErrorCode.INVALID_REQUEST]
