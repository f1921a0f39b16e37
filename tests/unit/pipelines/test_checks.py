"""Against nobody: what a cluster answers is in tests/spark/test_pipeline_failures.py."""

import time

import pytest

from distributedlog.model.errors import BrokerUnreachableError
from distributedlog.pipelines.checks import check_sources, make_topics
from distributedlog.pipelines.failures import Location
from distributedlog.spark.source.options import parse_stream_options
from tests.ports import free_port

SOON_SECONDS = 30.0


def test_a_flow_whose_cluster_nobody_answers_for_is_named_soon() -> None:
    servers = f"127.0.0.1:{free_port()}"
    options = parse_stream_options({"kafka.bootstrap.servers": servers, "subscribe": "orders"})
    places = {"spark_catalog.default.raw": Location("transformations/orders.py", 17)}
    for waits in (False, True):
        started = time.monotonic()
        with pytest.raises(
            BrokerUnreachableError, match=rf"^flow raw \(transformations/orders\.py:17\): .*{servers}"
        ):
            check_sources([("raw", options)], places, waits=waits)
        assert time.monotonic() - started < SOON_SECONDS, "it took 200 s"


def test_a_cluster_that_is_not_there_is_noticed_without_topics_to_make() -> None:
    with pytest.raises(BrokerUnreachableError):
        make_topics(f"127.0.0.1:{free_port()}", {})
