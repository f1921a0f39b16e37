"""Which cluster the client's tests speak to: ours, or Apache Kafka."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.bench.broker_kafka import FIRST, Kafka, bootstrap_of, make_first_topic

VARIABLE: Final = "DLOG_COMPAT_CLUSTER"
KAFKA: Final = "kafka"
ALONE: Final = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}


def is_kafka() -> bool:
    return os.environ.get(VARIABLE) == KAFKA


@contextmanager
def running_kafka(directory: Path) -> Iterator[str]:
    """Its bootstrap address."""
    kafka = Kafka(directory, ALONE)
    kafka.start()
    try:
        make_first_topic(kafka, FIRST)
        yield bootstrap_of(kafka)
    finally:
        kafka.stop()
