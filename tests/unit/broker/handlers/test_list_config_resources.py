import pytest

from distributedlog.model.error_codes import ErrorCode
from distributedlog.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tests.unit.broker.handlers.admin_stage import Broker
from tests.unit.broker.handlers.config_requests import BROKER, GROUP, TOPIC, store

LOGGER, METRICS = 8, 16


def ask(*types: int, version: int = 1) -> tuple[int, list[tuple[int, str]]]:
    broker = Broker(1, 2)
    broker.create("b")
    broker.create("a")
    request = ListConfigResourcesRequest(resource_types=list(types))
    response = broker.ask(request, version, ListConfigResourcesResponse)
    return response.error_code, [
        (each.resource_type, each.resource_name) for each in response.config_resources
    ]


def test_topics_and_brokers_are_listed() -> None:
    assert ask(TOPIC) == (0, [(TOPIC, "a"), (TOPIC, "b")])
    assert ask(BROKER) == (0, [(BROKER, "1"), (BROKER, "2")])
    assert ask(LOGGER) == (0, [(LOGGER, "1"), (LOGGER, "2")])
    brokers = [(kind, name) for kind in (BROKER, LOGGER) for name in ("1", "2")]
    assert ask() == (0, [(TOPIC, "a"), (TOPIC, "b"), *brokers])


def test_groups_with_settings_of_their_own_are_listed() -> None:
    broker = Broker()
    store(broker, GROUP, "b", consumer_session_timeout_ms="50000")
    store(broker, GROUP, "a", consumer_heartbeat_interval_ms="6000")
    request = ListConfigResourcesRequest(resource_types=[GROUP])
    listed = broker.ask(request, 1, ListConfigResourcesResponse).config_resources
    assert [(each.resource_type, each.resource_name) for each in listed] == [(GROUP, "a"), (GROUP, "b")]


@pytest.mark.parametrize("version", [0, 1])
def test_subscriptions_to_metrics_are_listed(version: int) -> None:
    broker = Broker()
    store(broker, METRICS, "m", interval_ms="5000")
    store(broker, GROUP, "g", consumer_session_timeout_ms="50000")
    request = ListConfigResourcesRequest(resource_types=[METRICS] if version else [])
    listed = broker.ask(request, version, ListConfigResourcesResponse).config_resources
    assert [each.resource_name for each in listed] == ["m"]


@pytest.mark.parametrize("kind", [16, 32])
def test_what_has_no_settings_here_is_not_listed(kind: int) -> None:
    assert ask(kind) == (0, [])


def test_version_0_lists_client_metrics_only() -> None:
    assert ask(version=0) == (0, [])


def test_a_type_that_nobody_knows_is_refused() -> None:
    assert ask(TOPIC, 3) == (ErrorCode.UNSUPPORTED_VERSION, [])
