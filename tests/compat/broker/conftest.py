"""One process of each client for all tests that a worker runs; with several brokers some are killed
meanwhile (`disturbing`)."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.compat.broker.clients import Clients
from tests.compat.broker.disturbing import Disturber
from tests.compat.broker.install import is_kafkajs_installed, missing_commands
from tests.compat.broker.matrix import Noted
from tests.compat.conftest import BROKERS
from tests.system.dev_cluster import DevCluster


@pytest.fixture(scope="session")
def broker(cluster: DevCluster) -> dict[str, Any]:
    """What the ready file says of the first broker, which lives as long as the tests."""
    facts = cluster.ready()["brokers"][0]
    assert isinstance(facts, dict)
    return facts


@pytest.fixture(scope="session")
def node_ids(cluster: DevCluster) -> list[int]:
    return [each["id"] for each in cluster.ready()["brokers"]]


@pytest.fixture(scope="session")
def disturber(cluster: DevCluster) -> Disturber:
    return Disturber(cluster)


@pytest.fixture(autouse=True)
def disturbed(request: pytest.FixtureRequest) -> None:
    """Some tests of a cluster begin when a broker has just been killed."""
    if BROKERS > 1 and "clients" in request.fixturenames:
        disturber: Disturber = request.getfixturevalue("disturber")
        disturber.before(request.node.nodeid)


@pytest.fixture(scope="session")
def clients(broker: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    missing = missing_commands() + ([] if is_kafkajs_installed() else ["KafkaJS as it is locked"])
    if missing:
        pytest.fail(f"not there: {', '.join(missing)}; run python -m tests.compat.broker.install")
    clients = Clients(broker["client"], tmp_path_factory.mktemp("clients"))
    yield clients
    clients.close()


@pytest.fixture
def noted(request: pytest.FixtureRequest) -> Noted:
    return Noted(request.node)
