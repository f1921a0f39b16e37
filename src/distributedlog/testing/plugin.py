"""Fixtures for pytest: a broker for the session, a topic for each test, clusters with faults.

| fixture        | scope    | gives                                                                        |
|----------------|----------|------------------------------------------------------------------------------|
| `dlog_broker`  | session  | the bootstrap address of one broker, which all tests share                   |
| `dlog_topic`   | function | the name of a new topic with one partition on it, which is gone afterwards   |
| `dlog_cluster` | function | `dlog_cluster(3)`: a `TestCluster` of the test's own, stopped afterwards     |

Nothing is imported or started before a test asks for it.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from distributedlog.testing.cluster import TestCluster

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def dlog_broker() -> Iterator[str]:
    """The bootstrap address of a broker that lives as long as the session."""
    from distributedlog.testing.cluster import TestCluster

    with TestCluster() as cluster:
        yield cluster.bootstrap


@pytest.fixture
def dlog_topic(dlog_broker: str) -> Iterator[str]:
    """A new topic with one partition."""
    from distributedlog import Admin, NewTopic

    name = f"test-{next(_numbers)}"
    with Admin(dlog_broker) as admin:
        admin.create_topic(NewTopic(name, 1))
        yield name
        admin.delete_topics([name])


@pytest.fixture
def dlog_cluster() -> "Iterator[Callable[..., TestCluster]]":
    """Makes clusters of a number of brokers; keyword arguments are those of `TestCluster`."""
    from distributedlog.testing.cluster import TestCluster

    with ExitStack() as started:

        def start(brokers: int = 3, **arguments: Any) -> TestCluster:
            return started.enter_context(TestCluster(brokers, **arguments))

        yield start
