"""Our own idempotent producer with acks=all: BOOTSTRAP TOPIC PARTITIONS NAME.

With DLOG_LOAD_ACKS=1 in the environment it is neither: it believes the leader alone.
"""

import os
import sys
from functools import partial

from distributedlog import DlogError, Producer, RecordMetadata, RecordTooLargeError
from tests.reliability.history import Outcome
from tests.reliability.journal import Journal
from tests.reliability.programs.stopping import stopping
from tests.reliability.programs.values import as_bytes, values_of
from tests.reliability.programs.window import Window

TIMEOUT_SECONDS = 60
DELIVERY_SECONDS = 600


def main() -> None:
    bootstrap, topic, partitions, name = sys.argv[1:]
    is_safe = os.environ.get("DLOG_LOAD_ACKS", "all") == "all"
    stop = stopping()
    window = Window(Journal(name), stop)

    def ended(value: str, error: DlogError | None, told: RecordMetadata | None) -> None:
        if error is None and told is not None:
            window.end(value, Outcome.OK, told.offset if told.offset >= 0 else None)
        else:
            refused = isinstance(error, RecordTooLargeError)
            window.end(value, Outcome.FAIL if refused else Outcome.UNKNOWN, None)

    producer = Producer(
        bootstrap,
        acks="all" if is_safe else 1,
        linger_ms=2,
        delivery_timeout_ms=DELIVERY_SECONDS * 1000,
        request_timeout_ms=20_000,
    )
    for place, value in values_of(name, topic, int(partitions)):
        window.rest()
        if not window.begin(place, value):
            break
        try:
            producer.send(
                topic,
                as_bytes(value),
                partition=place.partition,
                on_delivery=partial(ended, value),
            )
        except DlogError as error:
            ended(value, error, None)
    window.wait_until_empty(TIMEOUT_SECONDS)
    producer.close()


if __name__ == "__main__":
    main()
