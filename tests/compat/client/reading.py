"""Reading what a test waits for, within generous bounds."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from distributedlog import ConsumerRecord, TopicPartition
from tests.compat.client.faces import Face

WAIT_S = 60.0


def turns() -> Iterator[None]:
    """One turn after another, until that has taken far too long."""
    deadline = time.monotonic() + 2 * WAIT_S
    while time.monotonic() < deadline:
        yield
    raise TimeoutError(f"it did not happen within {2 * WAIT_S} s")


def until(is_so: Callable[[], bool], step: Callable[[], object] = lambda: time.sleep(0.05)) -> None:
    for _ in turns():
        if is_so():
            return
        step()


def read(consumer: Any, wanted: int) -> list[ConsumerRecord]:
    """So many records, or more."""
    found: list[ConsumerRecord] = []
    until(lambda: len(found) >= wanted, lambda: found.extend(consumer.poll(1000)))
    return found


def read_partition(
    face: Face, topic: str, partition: int, wanted: int, **settings: Any
) -> list[ConsumerRecord]:
    """So many records of a partition, from its beginning."""
    with face.consumer(**{"auto_offset_reset": "earliest", **settings}) as consumer:
        consumer.assign([TopicPartition(topic, partition)])
        return read(consumer, wanted)
