"""One broker, as a user has it who changed nothing, and Kafka's tools in front of it."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.jvm.tools import KafkaTools
from tests.system.dev_cluster import DevCluster


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What its ready file says of it."""
    directory = tmp_path_factory.mktemp("broker")
    with DevCluster(directory / "ready.json", "--port", "0", "--data-dir", directory / "data") as cluster:
        (facts,) = cluster.ready()["brokers"]
        yield facts
        assert cluster.stop() == 0


@pytest.fixture(scope="session")
def tools(broker: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> KafkaTools:
    return KafkaTools(broker["client"], tmp_path_factory.mktemp("tools"))
