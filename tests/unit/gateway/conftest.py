"""A real broker for the gateway's tests: one process for all, since each test has topics of its own."""

from collections.abc import Iterator

import pytest

from tests.system.server_process import ServerProcess


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a broker listens that creates no topic by itself."""
    directory = tmp_path_factory.mktemp("gateway-broker")
    with ServerProcess(directory, {"auto.create.topics.enable": "false"}) as server:
        yield str(server.facts["client"])
        assert server.stop() == 0
