"""aiokafka's idempotent producer with acks=all: BOOTSTRAP TOPIC PARTITIONS NAME.

With DLOG_LOAD_ACKS=1 in the environment it is neither: it believes the leader alone.
As many senders as may be under way; each sends one record after the other, to a partition of its own turn.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Iterator

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from tests.reliability.history import Outcome, Place
from tests.reliability.journal import Journal
from tests.reliability.programs.stopping import PAUSE_SECONDS, stopping
from tests.reliability.programs.values import as_bytes, values_of

UNDER_WAY_MAX = 10
TIMEOUT_MS = 60_000


async def send_one(producer: AIOKafkaProducer, journal: Journal, place: Place, value: str) -> None:
    journal.send(place, value)
    try:
        answer = await producer.send_and_wait(place.topic, as_bytes(value), partition=place.partition)
    except MessageSizeTooLargeError:
        journal.sent(value, Outcome.FAIL)
    except KafkaError:
        journal.sent(value, Outcome.UNKNOWN)
    else:
        journal.sent(value, Outcome.OK, answer.offset)


async def produce(bootstrap: str, values: Iterator[tuple[Place, str]], journal: Journal) -> None:
    stop = stopping()

    async def send_on() -> None:
        while not stop.is_set():
            place, value = next(values)
            await send_one(producer, journal, place, value)
            await asyncio.sleep(PAUSE_SECONDS * UNDER_WAY_MAX)

    is_safe = os.environ.get("DLOG_LOAD_ACKS", "all") == "all"
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=is_safe,
        acks="all" if is_safe else 1,
        linger_ms=2,
        request_timeout_ms=TIMEOUT_MS,
        retry_backoff_ms=50,
    )
    async with producer, asyncio.TaskGroup() as senders:
        for _ in range(UNDER_WAY_MAX):
            senders.create_task(send_on())


def main() -> None:
    logging.disable(logging.CRITICAL)  # that the broker is gone now and then is why this program is run
    bootstrap, topic, partitions, name = sys.argv[1:]
    asyncio.run(produce(bootstrap, values_of(name, topic, int(partitions)), Journal(name)))


if __name__ == "__main__":
    main()
