"""`make compat-jvm`: Kafka's own tools and Java client against our broker, where their jars can be had."""

import sys

import pytest

from tests.bench.broker_kafka import KAFKA_VERSION, LeftOutError, fetch_kafka


def main() -> int:
    try:
        fetch_kafka()
    except LeftOutError as reason:
        print(f"Kafka {KAFKA_VERSION} is left out: {reason}", file=sys.stderr)
        return 0
    return int(pytest.main(["-q", "tests/jvm", *sys.argv[1:]]))


if __name__ == "__main__":
    sys.exit(main())
