import socket
import time

import pytest

from distributedlog.model.errors import SparkNotReadyError
from distributedlog.spark.session.master import check_master, standalone_addresses
from distributedlog.spark.session.session import session


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[*]",
        "local[2]",
        "local[2,3]",
        "local-cluster[2,1,1024]",
        "yarn",
        "k8s://https://host:443",
    ],
)
def test_what_only_spark_can_find_is_left_to_it(master: str) -> None:
    check_master(master)


@pytest.mark.parametrize(
    "master", ["", "locl", "local[", "local[x]", "host:7077", "http://host:7077", "spark://", "spark://host"]
)
def test_what_is_no_master_is_refused(master: str) -> None:
    with pytest.raises(SparkNotReadyError, match="is no master of Spark: write"):
        check_master(master)


def test_several_masters_and_addresses_of_version_six_are_read() -> None:
    assert standalone_addresses("spark://a:7077,b.c:7078") == [("a", 7077), ("b.c", 7078)]
    assert standalone_addresses("spark://[::1]:7077") == [("::1", 7077)]
    for wrong in ("spark://a:0", "spark://a:70000", "spark://a:7077,b", "spark://a:7077/x"):
        with pytest.raises(SparkNotReadyError):
            standalone_addresses(wrong)


def test_one_master_that_answers_is_enough_and_none_is_said_with_why() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        check_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    with pytest.raises(SparkNotReadyError, match=r"no master .*127\.0\.0\.1:1: Connection refused"):
        check_master("spark://127.0.0.1:1")
    with pytest.raises(SparkNotReadyError, match="no master of Spark answers"):
        check_master("spark://no-such-host.invalid:7077")


def test_it_is_said_before_java_is_started() -> None:
    started = time.monotonic()
    with pytest.raises(SparkNotReadyError, match="no master of Spark answers"):
        session("x", master="spark://127.0.0.1:1")
    assert time.monotonic() - started < 30, "it took 63 s"
