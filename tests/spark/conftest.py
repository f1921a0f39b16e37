"""One Spark session and one broker for all tests of a process: starting Spark is what costs.

Tests that kill, or that change what others see, start their own broker, and their own drivers.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from distributedlog.spark.session.session import QUICK_START, close, session
from distributedlog.spark.topic_views import TOPICS_DATABASE, TOPICS_DATABASE_KEY
from tests.spark.topics import Topics
from tests.system.conftest import pytest_terminal_summary
from tests.system.server_process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["pytest_terminal_summary"]

CONFIG = {
    **QUICK_START,
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.sql.streaming.stopTimeout": "30s",
    TOPICS_DATABASE_KEY: TOPICS_DATABASE,  # as `dlog sql` has it, which finds this session when it is asked
    "spark.python.authenticate.socketTimeout": "120s",  # a busy machine takes its time to start a Python
}


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    made = session("tests", master="local[2]", config=CONFIG)
    yield made
    close()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("broker"), {"num.partitions": 3}) as server:
        yield server


@pytest.fixture(scope="module")
def topics_of_module(broker: ServerProcess) -> Topics:
    return Topics(str(broker.facts["client"]))


@pytest.fixture
def topics(broker: ServerProcess) -> Topics:
    return Topics(str(broker.facts["client"]))
