import pytest

from distributedlog.broker.handlers._operations import CLUSTER_OPERATIONS, NOT_ASKED_FOR
from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    get_broker_epoch,
    get_placement_host,
    set_epochs_wanted,
)
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


@pytest.mark.parametrize("version", EVERY)
def test_the_machine_is_told_of_brokers_that_said_it(version: int) -> None:
    broker = Broker(1)
    broker.join(2, host="machine-2")
    told = ask(broker, version).brokers
    assert [(each.host, get_placement_host(each)) for each in told] == [
        ("host-1", "host-1"),
        ("host-2", "machine-2"),
    ]
    assert told[0].unknown_tags == (), "Kafka's own bytes where there is nothing to say"


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


@pytest.mark.parametrize("version", EVERY)
def test_the_epoch_of_a_registration_is_told_to_who_asks_for_it(version: int) -> None:
    broker = Broker(1)
    broker.join(2, host="machine-2")
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    set_epochs_wanted(request)
    told = broker.ask(request, version, DescribeClusterResponse).brokers
    image = broker.services.metadata.image
    assert [get_broker_epoch(each) for each in told] == [image.brokers[1].epoch, image.brokers[2].epoch]
    assert get_placement_host(told[1]) == "machine-2"
    assert [get_broker_epoch(each) for each in ask(broker, version).brokers] == [None, None]
