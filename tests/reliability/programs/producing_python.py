"""kafka-python's idempotent producer with acks=all: BOOTSTRAP TOPIC PARTITIONS NAME.

With DLOG_LOAD_ACKS=1 in the environment it is neither: it believes the leader alone.
"""

import contextlib
import logging
import os
import sys

from kafka import KafkaProducer
from kafka.errors import KafkaError, MessageSizeTooLargeError

from tests.reliability.history import Outcome
from tests.reliability.journal import Journal
from tests.reliability.programs.stopping import stopping
from tests.reliability.programs.values import as_bytes, values_of
from tests.reliability.programs.window import Window

TIMEOUT_SECONDS = 60
DELIVERY_SECONDS = 600


def main() -> None:
    logging.disable(logging.CRITICAL)  # that brokers are gone now and then is why this program is run
    bootstrap, topic, partitions, name = sys.argv[1:]
    is_safe = os.environ.get("DLOG_LOAD_ACKS", "all") == "all"
    producer = KafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        acks="all" if is_safe else 1,
        enable_idempotence=is_safe,
        max_in_flight_requests_per_connection=5 if is_safe else 1,
        linger_ms=2,
        delivery_timeout_ms=DELIVERY_SECONDS * 1000,
        request_timeout_ms=20_000,
        retry_backoff_ms=50,
        metadata_max_age_ms=5_000,
    )
    stop = stopping()
    window = Window(Journal(name), stop)

    def failed(value: str, error: BaseException) -> None:
        refused = isinstance(error, MessageSizeTooLargeError)
        window.end(value, Outcome.FAIL if refused else Outcome.UNKNOWN, None)

    for place, value in values_of(name, topic, int(partitions)):
        window.rest()
        if not window.begin(place, value):
            break
        try:
            sent = producer.send(topic, as_bytes(value), partition=place.partition)
        except KafkaError as error:
            failed(value, error)
        else:
            sent.add_callback(lambda told, value=value: window.end(value, Outcome.OK, told.offset))
            sent.add_errback(lambda error, value=value: failed(value, error))
    window.wait_until_empty(TIMEOUT_SECONDS)
    with contextlib.suppress(KafkaError):
        producer.close(timeout=5)


if __name__ == "__main__":
    main()
