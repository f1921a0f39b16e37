"""`python -m tests.compat.client`: the client's tests against Apache Kafka, whose jars Maven brings.

Where they cannot be had the exit code is 1: a run that did not take place shows nothing.
"""

import os
import subprocess
import sys

from tests.bench.broker_kafka import KAFKA_VERSION, LeftOutError, fetch_kafka
from tests.compat.client.clusters import KAFKA, VARIABLE


def main() -> int:
    try:
        fetch_kafka()
    except LeftOutError as reason:
        print(
            f"Kafka {KAFKA_VERSION} cannot be had, and nothing was tested against it: {reason}. Java and "
            "Maven are needed, and a repository that Maven reaches.",
            file=sys.stderr,
        )
        return 1
    command = [sys.executable, "-m", "pytest", "-q", "tests/compat/client", *sys.argv[1:]]
    return subprocess.run(command, env={**os.environ, VARIABLE: KAFKA}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
