"""The cluster, both faces, and names of a test's own."""

import asyncio
from collections.abc import Iterator

import pytest

from distributedlog import Admin, NewTopic
from tests.bench.topics import make_topics
from tests.compat.broker.disturbing import Disturber
from tests.compat.client.clusters import is_kafka, running_kafka
from tests.compat.client.faces import Asyncio, Blocking, Face
from tests.compat.conftest import BROKERS
from tests.system.dev_cluster import DevCluster

PARTITIONS = 3


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if is_kafka():
        with running_kafka(tmp_path_factory.mktemp("kafka") / "node") as address:
            yield address
    else:
        cluster: DevCluster = request.getfixturevalue("cluster")
        yield cluster.ready()["bootstrap"]


@pytest.fixture(autouse=True)
def whole(request: pytest.FixtureRequest, bootstrap: str) -> None:
    """Tests of other clients kill brokers of the same cluster."""
    if BROKERS > 1 and not is_kafka():
        Disturber(request.getfixturevalue("cluster")).wait_until_whole()


@pytest.fixture(params=["blocking", "asyncio"])
def face(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[Face]:
    if request.param == "blocking":
        yield Blocking(bootstrap)
    else:
        with asyncio.Runner() as runner:
            yield Asyncio(bootstrap, runner)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics, groups and transactional ids."""
    module, test = request.module.__name__.split("test_")[-1], request.node.name.removeprefix("test_")
    return "".join(each if each.isalnum() else "-" for each in f"{module}-{test}").strip("-")[:100]


@pytest.fixture
def topic(name: str, bootstrap: str) -> str:
    # For ever, as what is sent has old times, and a broker would take it away in the middle of a test.
    make_topics(bootstrap, NewTopic(name, PARTITIONS, configs={"retention.ms": "-1"}))
    return name


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap) as admin:
        yield admin


@pytest.fixture
def replicas() -> int:
    """How many replicas a topic has by itself."""
    return 1 if is_kafka() else min(BROKERS, 3)
