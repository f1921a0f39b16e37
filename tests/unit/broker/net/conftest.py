"""Tests of connections run on sockets, and on channels in memory in virtual time."""

import pytest

from tests.unit.broker.server_stage import NETWORKS, Network


@pytest.fixture(params=NETWORKS, scope="session")
def network(request: pytest.FixtureRequest) -> Network:
    return NETWORKS[request.param]
