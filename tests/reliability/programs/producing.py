"""confluent-kafka's idempotent producer with acks=all: BOOTSTRAP TOPIC PARTITIONS NAME.

With DLOG_LOAD_ACKS=1 in the environment it is neither: it believes the leader alone.
It keeps a window of records under way.  Only what the broker has refused for a reason that rules out that it
was written is a failure; every other error leaves it unknown.
"""

import os
import sys
from typing import Any

from confluent_kafka import KafkaError, Producer

from tests.reliability.history import Outcome
from tests.reliability.journal import Journal
from tests.reliability.programs.librdkafka import COMMON
from tests.reliability.programs.stopping import PAUSE_SECONDS, stopping
from tests.reliability.programs.values import as_bytes, values_of

UNDER_WAY_MAX = 10
TIMEOUT_SECONDS = 60
DELIVERY_SECONDS = 600
"""Longer than any fault.  When a record times out, librdkafka begins another producer epoch, and under that
sends what is under way again though it may have been written: twice there, by no fault of the broker's."""
REFUSALS = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.INVALID_RECORD)


def outcome_of(error: KafkaError | None) -> Outcome:
    if error is None:
        return Outcome.OK
    return Outcome.FAIL if error.code() in REFUSALS else Outcome.UNKNOWN


def main() -> None:
    bootstrap, topic, partitions, name = sys.argv[1:]
    acks = os.environ.get("DLOG_LOAD_ACKS", "all")
    fatal: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": acks == "all",
            "acks": acks,
            "max.in.flight": 5 if acks == "all" else 1,
            "linger.ms": 2,
            "message.timeout.ms": DELIVERY_SECONDS * 1000,
            "retry.backoff.ms": 20,
            **COMMON,
            "error_cb": lambda error: fatal.append(error) if error.fatal() else None,
        }
    )
    journal, stop = Journal(name), stopping()
    under_way = 0

    def delivered(error: KafkaError | None, message: Any) -> None:
        nonlocal under_way
        under_way -= 1
        value = message.value().split(b" ")[0].decode()
        journal.sent(value, outcome_of(error), message.offset() if error is None else None)

    for place, value in values_of(name, topic, int(partitions)):
        while under_way >= UNDER_WAY_MAX and not fatal and not stop.is_set():
            producer.poll(0.1)
        if stop.is_set() or fatal:
            break
        journal.send(place, value)
        under_way += 1
        producer.produce(topic, as_bytes(value), partition=place.partition, on_delivery=delivered)
        producer.poll(PAUSE_SECONDS)
    producer.flush(TIMEOUT_SECONDS)
    sys.exit(f"{name}: {fatal[0]}" if fatal else 0)


if __name__ == "__main__":
    main()
