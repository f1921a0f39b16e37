import pytest

from distributedlog.broker.handlers._operations import CLUSTER_OPERATIONS, NOT_ASKED_FOR
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.unit.broker.handlers.admin_stage import Broker, elsewhere, versions_of
from tests.unit.controller.stage import CLUSTER

EVERY = versions_of(DescribeClusterRequest)


def ask(broker: Broker, version: int = EVERY[-1], **fields: object) -> DescribeClusterResponse:
    given = {"include_cluster_authorized_operations": False, **fields}
    request = DescribeClusterRequest(**given)  # type: ignore[arg-type]
    return broker.ask(request, version, DescribeClusterResponse)


@pytest.mark.parametrize("version", EVERY)
def test_every_version_tells_the_cluster(version: int) -> None:
    broker = Broker(1, 2)
    broker.join(3, endpoints=elsewhere(3), rack="r")
    broker.join(4, rack="r")
    broker.silence(2)
    response = ask(broker, version)
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, CLUSTER, 1)
    assert [(each.broker_id, each.host, each.port, each.rack) for each in response.brokers] == [
        (1, "host-1", 9092, None),
        (4, "host-4", 9092, "r"),
    ]
    assert response.cluster_authorized_operations == NOT_ASKED_FOR


def test_fenced_brokers_are_told_if_asked_for() -> None:
    broker = Broker(1, 2)
    broker.silence(2)
    response = ask(broker, include_fenced_brokers=True)
    assert [(each.broker_id, each.is_fenced) for each in response.brokers] == [(1, False), (2, True)]


def test_a_fenced_broker_is_no_controller_for_clients() -> None:
    broker = Broker(1, 2)
    broker.silence(1)
    assert ask(broker, include_fenced_brokers=True).controller_id == 2


@pytest.mark.parametrize("version", EVERY)
def test_allowed_operations_are_told_if_asked_for(version: int) -> None:
    response = ask(Broker(), version, include_cluster_authorized_operations=True)
    assert response.cluster_authorized_operations == CLUSTER_OPERATIONS


@pytest.mark.parametrize("version", EVERY[1:])
def test_whoever_seeks_controllers_came_to_the_wrong_place(version: int) -> None:
    assert ask(Broker(), version, endpoint_type=2).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    response = ask(Broker(), version, endpoint_type=7)
    assert response.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    assert response.error_message
    assert response.brokers == []
