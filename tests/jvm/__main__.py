"""`make compat-jvm`: Kafka's own tools and Java client against our broker, where their jars can be had."""

import sys

import pytest

from tests.bench.broker_kafka import KAFKA_VERSION, LeftOutError, fetch_kafka
from tests.jvm import connector


def main() -> int:
    try:
        fetch_kafka()
    except LeftOutError as reason:
        print(f"Kafka {KAFKA_VERSION} is left out: {reason}", file=sys.stderr)
        return 0
    left_out = []
    try:
        connector.fetch_connector()
    except LeftOutError as reason:
        print(f"Spark's Kafka connector {connector.VERSION} is left out: {reason}", file=sys.stderr)
        left_out = ["--ignore=tests/jvm/test_spark_connector.py"]
    return int(pytest.main(["-q", "tests/jvm", *left_out, *sys.argv[1:]]))


if __name__ == "__main__":
    sys.exit(main())
