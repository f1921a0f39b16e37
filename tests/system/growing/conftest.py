"""One cluster of three for all tests of this folder, and clients that must not see an error."""

from collections.abc import Iterator

import pytest

from tests.system.dev_cluster import DevCluster
from tests.system.replication.stage import Replicated


@pytest.fixture(scope="session")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicated]:
    directory = tmp_path_factory.mktemp("growing")
    arguments = ("--brokers", 3, "--data-dir", directory / "data", "--port", 0, "--no-gateway")
    with DevCluster(directory / "ready.json", *arguments) as cluster:
        yield Replicated(cluster, directory / "data")
