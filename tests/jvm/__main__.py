"""`make compat-jvm`: Kafka's own tools and Java client against our broker, where their jars can be had."""

import subprocess
import sys

from tests.bench.broker_kafka import KAFKA_VERSION, LeftOutError, fetch_kafka
from tests.jvm import connector, streams


def main() -> int:
    try:
        fetch_kafka()
    except LeftOutError as reason:
        print(f"Kafka {KAFKA_VERSION} cannot be had, and nothing was tried: {reason}", file=sys.stderr)
        return 1
    left_out = []
    try:
        connector.fetch_connector()
    except LeftOutError as reason:
        print(f"Spark's Kafka connector {connector.VERSION} is left out: {reason}", file=sys.stderr)
        left_out = ["--ignore=tests/jvm/test_spark_connector.py"]
    try:
        streams.fetch_streams()
    except LeftOutError as reason:
        print(f"Kafka Streams {KAFKA_VERSION} is left out: {reason}", file=sys.stderr)
        left_out.append("--ignore=tests/jvm/test_streams.py")
    # In a process of its own: pytest wants to be the first to import the package, whose plugin it has.
    command = [sys.executable, "-m", "pytest", "-q", "tests/jvm", *left_out, *sys.argv[1:]]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
