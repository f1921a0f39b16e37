"""One broker and one process of each client for all tests that a worker runs."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.compat.broker.clients import Clients
from tests.compat.broker.install import is_kafkajs_installed, missing_commands
from tests.compat.broker.matrix import Noted
from tests.system.dev_cluster import DevCluster


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A broker as a user has it who changed nothing; what its ready file says of it."""
    directory = tmp_path_factory.mktemp("broker")
    with DevCluster(directory / "ready.json", "--port", "0", "--data-dir", directory / "data") as cluster:
        (facts,) = cluster.ready()["brokers"]
        yield facts
        assert cluster.stop() == 0


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
